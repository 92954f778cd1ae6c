//! `fencepost force-unlock`: taking a lock away.

use std::io::{BufRead, IsTerminal, stdin};

use fencepost::blocking::wait;

use super::view::reach;
use crate::{
    args::{ForceUnlock, Global},
    exit, report,
};

pub(crate) fn force_unlock(global: &Global, args: &ForceUnlock) -> u8 {
    if !args.yes && !stdin().is_terminal() {
        return report::fail(
            exit::USAGE,
            "force-unlock asks first, and there is no terminal to ask at; give --yes",
        );
    }
    let locker = match reach(global) {
        Ok(locker) => locker,
        Err(code) => return code,
    };
    let status = match wait(locker.inspect(args.name.as_str())) {
        Ok(status) => status,
        Err(error) => return report::error(&error),
    };
    let owner = status.holder.as_ref().and_then(|holder| holder.owner.as_ref());
    let holder = match (&status.holder, owner) {
        (None, _) => "nobody".to_owned(),
        (Some(_), None) => "somebody who left no record".to_owned(),
        (Some(_), Some(owner)) => owner.to_string(),
    };
    if !args.yes {
        eprint!(
            "fencepost: take {} away, held by {holder}? Its holder may go on working until it notices. [y/N] ",
            args.name
        );
        let mut answer = String::new();
        let read = stdin().lock().read_line(&mut answer);
        if read.is_err() || !matches!(answer.trim(), "y" | "Y" | "yes") {
            return report::fail(exit::NOT_ACQUIRED, "nothing was changed");
        }
    }
    match wait(locker.force_unlock(args.name.as_str())) {
        Ok(forced) => {
            if !global.quiet {
                let token = forced.token;
                report::note(format_args!(
                    "lock={} was held by {holder}; raise its gate with token={token}",
                    args.name
                ));
            }
            println!("{}", forced.token);
            exit::OK
        }
        Err(error) => report::error(&error),
    }
}
