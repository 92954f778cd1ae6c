//! The scripts: what must be one step at the server.

use std::borrow::Cow;

use crate::redis::Script;

const COMMON: &str = include_str!("scripts/common.lua");

pub(super) static ENTER: Script = Script::new(|| with_common(include_str!("scripts/enter.lua")));
pub(super) static LEAVE: Script = Script::new(|| with_common(include_str!("scripts/leave.lua")));
pub(super) static WAKE: Script = Script::new(|| with_common(include_str!("scripts/wake.lua")));
pub(super) static FORCE: Script = Script::new(|| with_common(include_str!("scripts/force.lua")));
pub(super) static RENEW: Script = Script::new(|| Cow::Borrowed(include_str!("scripts/renew.lua")));
pub(super) static LOOK: Script = Script::new(|| Cow::Borrowed(include_str!("scripts/look.lua")));

fn with_common(text: &str) -> Cow<'static, str> {
    Cow::Owned(format!("{COMMON}\n{text}"))
}
