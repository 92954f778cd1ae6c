//! The scripts: what must be one step at the server.

use std::borrow::Cow;

use crate::redis::Script;

const CLOCK: &str = "local clock = redis.call('TIME')";
const COMMON: &str = include_str!("scripts/common.lua");
const MINT: &str = include_str!("scripts/mint.lua");

// What most callers need comes before the common part: a closure of Lua takes as long as a look at a key.
pub(super) static ENTER: Script = Script::new(|| {
    let free = include_str!("scripts/enter_free.lua");
    join(&[CLOCK, MINT, free, COMMON, include_str!("scripts/enter.lua")])
});
pub(super) static LEAVE: Script = Script::new(|| {
    let alone = include_str!("scripts/leave_alone.lua");
    join(&[alone, CLOCK, COMMON, include_str!("scripts/leave.lua")])
});
pub(super) static WAKE: Script = Script::new(|| join(&[CLOCK, COMMON, include_str!("scripts/wake.lua")]));
pub(super) static FORCE: Script =
    Script::new(|| join(&[CLOCK, MINT, COMMON, include_str!("scripts/force.lua")]));
pub(super) static RENEW: Script = Script::new(|| Cow::Borrowed(include_str!("scripts/renew.lua")));
pub(super) static PROCLAIM: Script = Script::new(|| Cow::Borrowed(include_str!("scripts/proclaim.lua")));
pub(super) static LOOK: Script = Script::new(|| Cow::Borrowed(include_str!("scripts/look.lua")));

fn join(parts: &[&str]) -> Cow<'static, str> {
    Cow::Owned(parts.join("\n"))
}
