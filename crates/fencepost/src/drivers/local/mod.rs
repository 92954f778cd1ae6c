//! The embedded engine (placeholder while it is being written).
use crate::{
    connect::Url,
    driver::{Driver, Host},
    error::{Error, ErrorKind},
};
use std::sync::Arc;
pub(crate) fn connect(url: Url, _host: Arc<dyn Host>) -> Result<Arc<dyn Driver>, Error> {
    url.finish(&[])?;
    Err(Error::new(ErrorKind::Unsupported, "not yet"))
}
