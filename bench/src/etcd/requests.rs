//! What the members were asked, as they count it.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use fencepost_lab::server::etcd::Etcd;

use crate::outcome::Outcome;

/// How many messages clients have sent to all members since they started, of the methods that `counts` says.
pub(super) fn messages(cluster: &Etcd, counts: impl Fn(&str) -> bool) -> Outcome<f64> {
    let mut sum = 0.0;
    for member in 0..cluster.size() {
        let mut stream = TcpStream::connect(cluster.addr(member))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n")?;
        let mut text = Vec::new();
        stream.read_to_end(&mut text)?;
        for line in String::from_utf8_lossy(&text).lines() {
            let Some(rest) = line.strip_prefix("grpc_server_msg_received_total{") else { continue };
            let Some((labels, number)) = rest.rsplit_once("} ") else { continue };
            let method = labels.split("grpc_method=\"").nth(1).and_then(|rest| rest.split('"').next());
            if method.is_some_and(&counts) {
                sum += number.trim().parse::<f64>()?;
            }
        }
    }
    Ok(sum)
}
