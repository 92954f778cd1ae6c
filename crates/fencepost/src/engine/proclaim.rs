//! Writing a holder's owner record again, so that observers see what a leader has to say.

use std::sync::Arc;

use crate::{
    claim::{Claim, Loss},
    driver::{Driver, Fail, Proclaimed},
    engine::verb,
    error::{Error, ErrorKind},
    owner::Owner,
};

/// Makes `value` the one that others see, if `claim` is still the holder.
pub(crate) async fn proclaim(driver: Arc<dyn Driver>, claim: Arc<Claim>, value: String) -> Result<(), Error> {
    let lost = || {
        let text = format!("the value was not proclaimed: lock={} is no longer held", claim.lock());
        Err(Error::new(ErrorKind::Lost, text))
    };
    if !claim.is_held() {
        return lost();
    }
    let owner = Owner { value: Some(value), ..claim.owner().clone() };
    let proclaiming = claim.clone();
    let writing = Box::pin(async move { driver.proclaim(&proclaiming, &owner).await });
    match verb(&claim, writing).await {
        Ok(Proclaimed::Written) if claim.is_held() => Ok(()),
        Ok(Proclaimed::Written) => lost(),
        Ok(Proclaimed::Lost) => {
            claim.lose(Loss::Gone);
            lost()
        }
        Err(Fail::NoLease) => {
            claim.lease().dead();
            lost()
        }
        Err(fail) => Err(fail.into()),
    }
}
