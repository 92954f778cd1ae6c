//! Three servers that decide together.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::super::Port;
use super::{Options, PATIENCE, ZooKeeper};
use crate::clock::now_ns;
use crate::proxy::Proxy;

/// An ensemble of three, each with a proxy before its clients' port, and one between each two servers' links to a leader.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<ZooKeeper>,
    /// Where the others reach server `to` when it leads: `links[from][to]`.
    links: Vec<Vec<Proxy>>,
    _ports: Vec<Port>,
}

impl Ensemble {
    /// Starts three servers and waits until they have a leader.
    ///
    /// # Errors
    ///
    /// When they are not installed or do not get ready.
    pub fn start(options: &Options) -> io::Result<Self> {
        let ports = (0..6).map(|_| Port::free()).collect::<io::Result<Vec<_>>>()?;
        let (quorum, election) = ports.split_at(3);
        let link = |to: &Port| Proxy::start(to.addr());
        let links = (0..3).map(|_| quorum.iter().map(link).collect::<io::Result<Vec<_>>>());
        let links = links.collect::<io::Result<Vec<_>>>()?;
        let mut servers = Vec::new();
        for (me, links) in links.iter().enumerate() {
            let member = |other: usize| {
                // A server listens where its own line says, and finds the others where theirs do.
                let leading = if other == me { quorum[other].addr() } else { links[other].addr() };
                let (leading, electing) = (leading.port(), election[other].number());
                format!("server.{}=127.0.0.1:{leading}:{electing}", other + 1)
            };
            let lines = (0..3).map(member).collect();
            let mut options = options.clone();
            // Else each server compares its list with the others' at its start, and these differ on purpose.
            options.extra.push("reconfigEnabled=false".into());
            servers.push(ZooKeeper::prepare(options, Some((me as u32 + 1, lines)))?);
        }
        let mut ensemble = Self { servers, links, _ports: ports };
        ensemble.restart()?;
        Ok(ensemble)
    }

    /// A URL that names all three.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.servers.iter().map(|server| server.addr().to_string()).collect();
        format!("zk://{}", hosts.join(","))
    }

    /// One of the servers.
    ///
    /// # Panics
    ///
    /// Unless it is 0, 1 or 2.
    pub fn server(&mut self, server: usize) -> &mut ZooKeeper {
        &mut self.servers[server]
    }

    /// Their addresses.
    #[must_use]
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(ZooKeeper::addr).collect()
    }

    /// What lies on the way from one server to another that leads.
    #[must_use]
    pub fn link(&self, from: usize, to: usize) -> &Proxy {
        &self.links[from][to]
    }

    /// Who leads.
    ///
    /// # Errors
    ///
    /// When nobody does within a minute.
    pub fn leader(&self) -> io::Result<usize> {
        self.wait_for(|ensemble| ensemble.with_role("leader").first().copied())
    }

    /// Those that serve, and follow.
    #[must_use]
    pub fn followers(&self) -> Vec<usize> {
        self.with_role("follower")
    }

    fn with_role(&self, role: &str) -> Vec<usize> {
        let has = |server: &ZooKeeper| server.process.is_some() && server.role().as_deref() == Some(role);
        (0..self.servers.len()).filter(|server| has(&self.servers[*server])).collect()
    }

    /// Kills those that run and starts all again, with what they had. Waits until all serve.
    ///
    /// # Errors
    ///
    /// When one does not get ready.
    pub fn restart(&mut self) -> io::Result<()> {
        self.servers.iter_mut().try_for_each(ZooKeeper::kill)?;
        self.servers.iter_mut().try_for_each(ZooKeeper::run)?;
        self.servers.iter_mut().try_for_each(ZooKeeper::wait_serving)
    }

    /// Starts those that were killed and lets those go on that were paused, and waits until all serve.
    ///
    /// # Errors
    ///
    /// When one does not get ready.
    pub fn heal(&mut self) -> io::Result<()> {
        for server in &mut self.servers {
            match &mut server.process {
                Some(process) => process.resume()?,
                None => server.run()?,
            }
        }
        for (from, to) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
            self.links[from][to].heal()?;
            self.links[from][to].set_both(crate::proxy::Mode::Pass);
        }
        self.servers.iter_mut().try_for_each(ZooKeeper::wait_serving)
    }

    fn wait_for<T>(&self, look: impl Fn(&Self) -> Option<T>) -> io::Result<T> {
        let end = now_ns() + PATIENCE.as_nanos() as u64;
        loop {
            match look(self) {
                Some(found) => return Ok(found),
                None if now_ns() >= end => {
                    return Err(io::Error::other("the ensemble does not come to an end"));
                }
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}
