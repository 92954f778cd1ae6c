//! Each mode of the proxy, in front of a real echo server, from blocking sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use fencepost_lab::clock::now_ns;
use fencepost_lab::proxy::{
    Direction::{ToClient, ToServer},
    Mode, Proxy,
};

/// Long enough for bytes to arrive if they are going to.
const A_WHILE: Duration = Duration::from_millis(150);
const SOON: Duration = Duration::from_secs(10);

/// A server that sends back what it gets. Its threads end with their connections, and with the test.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut writer = connection.try_clone().unwrap();
                let _ = std::io::copy(&mut connection, &mut writer);
                let _ = writer.shutdown(Shutdown::Write);
            });
        }
    });
    addr
}

fn start() -> (Proxy, TcpStream) {
    let proxy = Proxy::start(echo()).unwrap();
    let client = connect(&proxy);
    (proxy, client)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let client = TcpStream::connect(proxy.addr()).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    client.set_nodelay(true).unwrap();
    client
}

fn expect(client: &mut TcpStream, text: &str) {
    let mut got = vec![0; text.len()];
    client.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), text);
}

fn expect_silence(client: &mut TcpStream) {
    client.set_read_timeout(Some(A_WHILE)).unwrap();
    let error = client.read(&mut [0]).expect_err("neither bytes nor the end");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    client.set_read_timeout(Some(SOON)).unwrap();
}

/// Whether it came as an end or as a reset, the connection is over.
fn expect_closed(client: &mut TcpStream) {
    match client.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("the connection should be closed, got {other:?}"),
    }
}

#[test]
fn bytes_and_ends_pass_and_are_counted() {
    let (proxy, mut client) = start();
    client.write_all(b"hello").unwrap();
    expect(&mut client, "hello");
    client.shutdown(Shutdown::Write).unwrap();
    expect_closed(&mut client);
    assert_eq!((proxy.bytes(ToServer), proxy.bytes(ToClient)), (5, 5));
    drop(connect(&proxy));
    let mut second = connect(&proxy);
    second.write_all(b"x").unwrap();
    expect(&mut second, "x");
    assert_eq!(proxy.connections(), 3);
}

#[test]
fn much_passes_in_order() {
    let (proxy, mut client) = start();
    let sent: Vec<u8> = (0..8_u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut writer = client.try_clone().unwrap();
    let expected = sent.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    writing.join().unwrap();
    assert!(got == expected, "got {} of {} bytes, or others", got.len(), expected.len());
    assert_eq!(proxy.bytes(ToServer), 8 << 20);
}

#[test]
fn held_requests_flow_later() {
    let (proxy, mut client) = start();
    proxy.set(ToServer, Mode::Hold);
    client.write_all(b"held").unwrap();
    expect_silence(&mut client);
    assert_eq!(proxy.bytes(ToServer), 0);
    proxy.set(ToServer, Mode::Pass);
    expect(&mut client, "held");
}

#[test]
fn held_replies_flow_later() {
    let (proxy, mut client) = start();
    proxy.set(ToClient, Mode::Hold);
    client.write_all(b"held").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    expect_silence(&mut client);
    assert_eq!((proxy.bytes(ToServer), proxy.bytes(ToClient)), (4, 0));
    proxy.set(ToClient, Mode::Pass);
    expect(&mut client, "held");
    expect_closed(&mut client);
}

#[test]
fn a_hold_stops_a_fast_sender() {
    let (proxy, mut client) = start();
    proxy.set(ToServer, Mode::Hold);
    client.set_write_timeout(Some(A_WHILE)).unwrap();
    let error = client.write_all(&vec![0; 64 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert_eq!(proxy.bytes(ToServer), 0);
}

#[test]
fn a_delay_postpones_every_byte_by_the_same_time() {
    let (proxy, mut client) = start();
    proxy.set(ToServer, Mode::Delay(A_WHILE));
    let began = now_ns();
    for _ in 0..5 {
        client.write_all(b"x").unwrap();
        thread::sleep(A_WHILE / 10);
    }
    expect(&mut client, "x");
    assert!(now_ns() - began >= A_WHILE.as_nanos() as u64);
    expect(&mut client, "xxxx");
    let took = Duration::from_nanos(now_ns() - began);
    assert!(took < 4 * A_WHILE, "the delays add up: took {took:?}");
}

#[test]
fn a_change_of_mode_ends_a_delay() {
    let (proxy, mut client) = start();
    proxy.set_both(Mode::Delay(Duration::from_secs(3_600)));
    client.write_all(b"x").unwrap();
    expect_silence(&mut client);
    proxy.set_both(Mode::Pass);
    expect(&mut client, "x");
}

#[test]
fn swallowed_bytes_are_gone() {
    let (proxy, mut client) = start();
    proxy.set(ToServer, Mode::Hold);
    client.write_all(b"held and then lost").unwrap();
    thread::sleep(A_WHILE);
    proxy.set(ToServer, Mode::Swallow);
    client.write_all(b"lost").unwrap();
    expect_silence(&mut client);
    proxy.set(ToServer, Mode::Pass);
    client.write_all(b"after").unwrap();
    expect(&mut client, "after");
    assert_eq!(proxy.bytes(ToServer), 5);
}

#[test]
fn a_swallowed_end_leaves_the_connection_open_until_a_cut() {
    let (proxy, mut client) = start();
    proxy.set(ToClient, Mode::Swallow);
    client.shutdown(Shutdown::Write).unwrap();
    expect_silence(&mut client);
    proxy.set(ToClient, Mode::Pass);
    expect_silence(&mut client);
    proxy.cut();
    expect_closed(&mut client);
}

#[test]
fn a_connection_closes_after_so_many_bytes() {
    let (proxy, mut client) = start();
    client.write_all(b"before").unwrap();
    expect(&mut client, "before");
    proxy.set(ToClient, Mode::CloseAfter(3));
    client.write_all(b"1").unwrap();
    expect(&mut client, "1");
    client.write_all(b"23456").unwrap();
    expect(&mut client, "23");
    expect_closed(&mut client);
    let mut second = connect(&proxy);
    second.write_all(b"abcd").unwrap();
    expect(&mut second, "abc");
    expect_closed(&mut second);
}

#[test]
fn a_connection_closes_after_no_bytes_at_once() {
    let (proxy, mut client) = start();
    client.write_all(b"x").unwrap();
    expect(&mut client, "x");
    proxy.set(ToServer, Mode::CloseAfter(0));
    expect_closed(&mut client);
}

#[test]
fn a_cut_closes_and_refuses_until_it_heals() {
    let (proxy, mut client) = start();
    for _ in 0..3 {
        client.write_all(b"x").unwrap();
        expect(&mut client, "x");
        proxy.cut();
        expect_closed(&mut client);
        let error = TcpStream::connect(proxy.addr()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        proxy.heal().unwrap();
        proxy.heal().unwrap();
        client = connect(&proxy);
    }
}

#[test]
fn a_dropped_proxy_is_gone() {
    let (proxy, mut client) = start();
    let addr = proxy.addr();
    proxy.set_both(Mode::Hold);
    drop(proxy);
    expect_closed(&mut client);
    assert_eq!(TcpStream::connect(addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_server_that_does_not_listen_closes_the_connection() {
    let nobody = fencepost_lab::server::Port::free().unwrap();
    let proxy = Proxy::start(nobody.addr()).unwrap();
    expect_closed(&mut connect(&proxy));
    let _server = TcpListener::bind(nobody.addr()).unwrap();
    expect_silence(&mut connect(&proxy));
}

#[test]
fn new_connections_lead_elsewhere() {
    let (proxy, mut old) = start();
    // Until something has come back, the old connection may not have been led anywhere yet.
    old.write_all(b"first").unwrap();
    expect(&mut old, "first");
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.lead_to(elsewhere.local_addr().unwrap());
    let mut new = connect(&proxy);
    let (mut met, _) = elsewhere.accept().unwrap();
    met.write_all(b"there").unwrap();
    expect(&mut new, "there");
    old.write_all(b"here").unwrap();
    expect(&mut old, "here");
}
