//! `fencepost gate`: showing a token at a gate, and looking after gates.

#[cfg(feature = "postgres")]
mod database;
mod place;
mod show;

use std::{
    env,
    io::{Read, stdin},
};

use fencepost::{
    Lineage, Token,
    gate::{Mark, Pass},
};

use crate::{
    args::{self, Gate, GateCommand, Global},
    exit, report,
};
use place::Place;

pub(crate) fn gate(global: &Global, args: &Gate) -> u8 {
    #[cfg(feature = "postgres")]
    if let GateCommand::Install(install) = &args.command
        && install.print
    {
        print!("{}", fencepost_sqlx::postgres::INSTALL);
        return exit::OK;
    }
    let done = Place::find(global, args).and_then(|place| match &args.command {
        GateCommand::Fence(shown) => place.fence(&resource(&place, shown)?, &pass(shown)?),
        GateCommand::Admit(shown) => place.admit(&resource(&place, shown)?, &pass(shown)?),
        GateCommand::Write(shown) => {
            resource(&place, shown)?;
            place.write(&pass(shown)?, &input()?)
        }
        GateCommand::Show(args) => show::show(&place, args),
        GateCommand::Rebind(args) => rebind(global, &place, args),
        #[cfg(feature = "postgres")]
        GateCommand::Install(args) => place.install(&args.grant),
        #[cfg(feature = "postgres")]
        GateCommand::Uninstall(args) => place.uninstall(args.yes),
    });
    done.err().unwrap_or(exit::OK)
}

/// What `fencepost run` put into the environment, or a person.
fn variable(name: &str) -> Result<Option<String>, u8> {
    let Some(value) = env::var_os(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let text = value.into_string();
    text.map(Some).map_err(|_| report::fail(exit::USAGE, format_args!("{name}: it is not UTF-8")))
}

fn resource(place: &Place, shown: &args::Pass) -> Result<String, u8> {
    if place.is_one_resource() {
        return place.only_one(shown.resource.as_deref()).map(|()| String::new());
    }
    let of_lock = || variable("FENCEPOST_LOCK").transpose();
    match shown.resource.clone().map(Ok).or_else(of_lock) {
        Some(resource) => resource,
        None => Err(report::fail(
            exit::USAGE,
            "no resource: give its name, such as orders/4821, or call this under `fencepost run`",
        )),
    }
}

fn pass(shown: &args::Pass) -> Result<Pass, u8> {
    let lineage = shown.lineage.clone().map(Lineage::new);
    if let Some(token) = shown.token {
        return Ok(Pass { token, lineage });
    }
    let Some(token) = variable("FENCEPOST_TOKEN")? else {
        return Err(report::fail(exit::USAGE, "no token: give --token, or call this under `fencepost run`"));
    };
    let token = token
        .parse::<Token>()
        .map_err(|error| report::fail(exit::USAGE, format_args!("FENCEPOST_TOKEN: {error}")))?;
    let lineage = lineage.or(variable("FENCEPOST_LINEAGE")?.map(Lineage::new));
    Ok(Pass { token, lineage })
}

fn input() -> Result<Vec<u8>, u8> {
    let mut content = Vec::new();
    match stdin().lock().read_to_end(&mut content) {
        Ok(_) => Ok(content),
        Err(error) => Err(report::fail(exit::USAGE, format_args!("cannot read stdin: {error}"))),
    }
}

fn rebind(global: &Global, place: &Place, args: &args::Rebind) -> Result<(), u8> {
    let resource = match (&args.resource, place.is_one_resource()) {
        (given, true) => place.only_one(given.as_deref()).map(|()| String::new())?,
        (Some(resource), false) => resource.clone(),
        (None, false) => {
            return Err(report::fail(exit::USAGE, "no resource: give its name, such as orders/4821"));
        }
    };
    if !args.yes {
        return Err(report::fail(
            exit::USAGE,
            "after a rebind tokens that are stale now may pass again; if that is right, give --yes",
        ));
    }
    let mark = Mark { highest: args.highest, lineage: args.lineage.clone().map(Lineage::new) };
    let before = place.rebind(&resource, &mark)?;
    if !global.quiet {
        report::note(format_args!("the gate had recorded {}", show::words(&before)));
    }
    Ok(())
}
