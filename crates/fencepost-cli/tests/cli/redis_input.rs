//! Bad input about a Redis server: for each the exit status and one line that names the fix, and nowhere a password.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::thread;

use fencepost_lab::server::certificates::Certificates;
use fencepost_lab::server::redis::{Options, Redis, Tls};
use fencepost_lab::server::{Port, postgres};
use libtest_mimic::Trial;

use crate::redis::{SECRET, trial};
use crate::world::{Said, World};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 10] = [
        ("redis_input_unreached", unreached),
        ("redis_input_no_redis", no_redis),
        ("redis_input_wrong_password", wrong_password),
        ("redis_input_password_sources", sources),
        ("redis_input_special_characters", special),
        ("redis_input_echoed_password", echoed),
        ("redis_input_wrong_role", wrong_role),
        ("redis_input_tls", tls),
        ("redis_input_urls", urls),
        ("redis_input_tokens", tokens),
    ];
    tests.into_iter().map(|(name, test)| trial(name, test)).collect()
}

/// The command does not run, and each way to ask says the same in one line without the password.
#[track_caller]
fn refused(world: &World, url: &str, code: i32, parts: &[&str]) {
    for words in ["run --connect-timeout 7s x -- touch ran", "status x", "force-unlock --yes x"] {
        let mut command = world.command(words, &[]);
        command.env("FENCEPOST_URL", url);
        let said = world.spawn(command).said();
        is_clean(&said);
        said.says(code, &[&["FENCEPOST_URL: "], parts].concat());
    }
    assert!(!world.path("ran").exists());
}

#[track_caller]
fn is_clean(said: &Said) {
    for secret in [SECRET, "s3cr"] {
        assert!(!said.err.contains(secret) && !said.out.contains(secret), "{said:?}");
    }
}

/// A server that does with each connection what `serve` says.
fn listen(serve: fn(std::net::TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    // It ends with this process.
    thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| drop(thread::spawn(move || serve(stream))))
    });
    address
}

fn unreached() {
    let world = World::local();
    refused(
        &world,
        &format!("redis://:{SECRET}@no-such-host.invalid"),
        69,
        &["redis://no-such-host.invalid:6379/0"],
    );
    let port = Port::free().expect("a port");
    let address = port.addr();
    refused(
        &world,
        &format!("redis://:{SECRET}@{address}"),
        69,
        &[&format!("redis://{address}/0"), "refused"],
    );
    let server = Redis::start(Options::default()).expect("it starts");
    drop(server);
}

fn no_redis() {
    let world = World::local();
    let http = listen(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    });
    refused(&world, &format!("redis://:{SECRET}@{http}"), 78, &["does not speak the Redis protocol"]);
    let silent =
        listen(|mut stream| drop(stream.read(&mut [0; 4096]).and_then(|_| stream.read(&mut [0; 4096]))));
    refused(&world, &format!("redis://:{SECRET}@{silent}"), 69, &["did not answer within"]);
    let closing = listen(drop);
    refused(&world, &format!("redis://:{SECRET}@{closing}"), 69, &["closed the connection"]);
    if postgres::installed().is_ok() {
        let server = postgres::Postgres::start(postgres::Options::default()).expect("it starts");
        let url = format!("redis://:{SECRET}@127.0.0.1:{}", server.addr().port());
        refused(&world, &url, 69, &["closed the connection"]);
    }
}

fn wrong_password() {
    let world = World::local();
    let options = Options { password: Some(SECRET.into()), ..Options::default() };
    let server = Redis::start(options).expect("it starts");
    let address = server.addr();
    let name = format!("redis://{address}/0");
    refused(&world, &format!("redis://:s3cr-wrong@{address}"), 77, &[&name, "refuses the user or password"]);
    refused(&world, &format!("redis://nobody:s3cr@{address}"), 77, &[&name, "refuses the user or password"]);
    refused(&world, &format!("redis://{address}"), 77, &["password"]);
}

fn sources() {
    let world = World::local();
    let options = Options { password: Some(SECRET.into()), ..Options::default() };
    let server = Redis::start(options).expect("it starts");
    let (address, path) = (server.addr(), world.path("password"));
    let with_file = |path: &std::path::Path| format!("redis://{address}?password_file={}", path.display());
    refused(&world, &with_file(&path), 78, &["cannot read the password file", &path.display().to_string()]);
    fs::write(&path, "").expect("ours");
    refused(&world, &with_file(&path), 78, &["first line is empty"]);
    refused(&world, &with_file(&world.path("home")), 78, &["cannot read the password file: Is a directory"]);
    fs::write(&path, b"s3cr\xff\n").expect("ours");
    refused(&world, &with_file(&path), 78, &["cannot read the password file", "UTF-8"]);
    refused(&world, &format!("redis://{address}?password_env=NO_SUCH"), 78, &["password_env", "NO_SUCH"]);
    refused(&world, &format!("redis://:{SECRET}@{address}?password_env=HOME"), 78, &["twice"]);
    refused(&world, &format!("redis://{address}?password_file=systemd:x"), 78, &["CREDENTIALS_DIRECTORY"]);
    fs::write(&path, format!("{SECRET}\n")).expect("ours");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
    let ask = |url: &str| {
        let mut command = world.command("run x -- sh -c", &["echo $FENCEPOST_BACKEND; env >env"]);
        command.env("FENCEPOST_URL", url).env("THE_PASSWORD", SECRET);
        let said = world.spawn(command).said();
        is_clean(&said);
        assert_eq!(said.quiet(0).trim(), format!("redis://{address}/0"));
    };
    ask(&with_file(&path));
    ask(&format!("redis://{address}?password_env=THE_PASSWORD"));
}

/// In the URL, in a file and in a variable.
fn special() {
    let world = World::local();
    for password in ["s3cr@:/%#? &=+", "s3crü日本", "s3cr\\\"'$(x)`", "s3cr%40", "s3cr 1"] {
        let user = "us:er@ü";
        let mut rules = Options { password: Some("other".into()), ..Options::default() };
        rules.extra.push("acllog-max-len 8".into());
        let server = Redis::start(rules).expect("it starts");
        server
            .command::<()>(&["ACL", "SETUSER", user, "on", &format!(">{password}"), "~*", "&*", "+@all"])
            .expect("it answers");
        let bare = server.url_as(user, "");
        let (address, user) = (
            server.addr(),
            bare.split_once("//").and_then(|(_, rest)| rest.split_once(':')).expect("a user").0.to_owned(),
        );
        fs::write(world.path("password"), password).expect("ours");
        for url in [
            server.url_as("us:er@ü", password),
            format!("redis://{user}@{address}?password_file={}", world.path("password").display()),
            format!("redis://{user}@{address}?password_env=THE_PASSWORD"),
        ] {
            let mut command = world.command("run --events events x -- sh -c", &["echo $FENCEPOST_BACKEND"]);
            command.env("FENCEPOST_URL", &url).env("THE_PASSWORD", password);
            let said = world.spawn(command).said();
            is_clean(&said);
            assert_eq!(said.quiet(0).trim(), format!("redis://{address}/0"), "{password}");
        }
    }
    let events = fs::read_to_string(world.path("events")).expect("it was written");
    assert!(!events.contains("s3cr"), "{events}");
}

/// A server that repeats what it does not understand: the login, for one.
fn echoed() {
    let world = World::local();
    let address = listen(|mut stream| {
        let said = format!("-ERR unknown command 'AUTH', with args beginning with: '{SECRET}' \r\n");
        while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0)
            && stream.write_all(said.as_bytes()).is_ok()
        {}
    });
    refused(&world, &format!("redis://:{SECRET}@{address}"), 77, &["refuses the user or password"]);
}

fn wrong_role() {
    let world = World::local();
    let primary = Redis::start(Options::default()).expect("it starts");
    let replica =
        Redis::start(Options { replica_of: Some(primary.addr()), ..Options::default() }).expect("it starts");
    refused(&world, &replica.url(), 78, &["read-only replica", "primary"]);
    let cluster = Redis::start(Options { cluster: true, ..Options::default() }).expect("it starts");
    refused(&world, &cluster.url(), 78, &["Redis Cluster"]);
}

fn tls() {
    let world = World::local();
    let (files, others) =
        (Certificates::generate().expect("files"), Certificates::generate().expect("files"));
    let secure =
        Redis::start(Options { tls: Some(Tls::from(&files)), ..Options::default() }).expect("it starts");
    let strict = Tls { ask_clients: true, ..Tls::from(&files) };
    let strict = Redis::start(Options { tls: Some(strict), ..Options::default() }).expect("it starts");
    let plain = Redis::start(Options::default()).expect("it starts");
    let url = |scheme: &str, server: &Redis, ca: Option<&Certificates>| {
        let ca = ca.map_or(String::new(), |files| format!("?ca={}", files.authority().display()));
        format!("{scheme}://{}{ca}", server.addr())
    };
    refused(&world, &url("redis", &secure, None), 69, &["rediss://"]);
    // It reads the handshake as the beginning of a command, unless a line ends in it: then it answers.
    let ask = |url: String| {
        let mut command = world.command("run x -- touch ran", &[]);
        command.env("FENCEPOST_URL", url);
        world.spawn(command).said()
    };
    let said = ask(url("rediss", &plain, Some(&files)));
    let code = if said.err.contains("did not answer") { 69 } else { 78 };
    said.says(code, &["redis://"]);
    refused(&world, &url("rediss", &secure, Some(&others)), 77, &["TLS handshake", "certificate"]);
    refused(&world, &url("rediss", &secure, None), 77, &["TLS handshake", "certificate"]);
    refused(&world, &url("rediss", &strict, Some(&files)), 77, &["refuses us in TLS", "cert= and key="]);
    let by_name = format!("{}&server_name=elsewhere.example", url("rediss", &secure, Some(&files)));
    refused(&world, &by_name, 77, &["certificate"]);
    for (option, part) in [("ca=/nowhere", "/nowhere"), ("cert=/nowhere&key=/nowhere", "/nowhere")] {
        refused(&world, &format!("rediss://{}?{option}", secure.addr()), 78, &[part]);
    }
    // A key that is no key, and one that belongs to another certificate.
    let pair = |cert: &std::path::Path, key: &std::path::Path| {
        format!("{}&cert={}&key={}", url("rediss", &strict, Some(&files)), cert.display(), key.display())
    };
    refused(&world, &pair(&files.client(), &files.client()), 78, &["key="]);
    refused(&world, &pair(&files.client(), &others.client_key()), 78, &["cert=", "key="]);
    refused(
        &world,
        &pair(&others.client(), &others.client_key()),
        77,
        &["refuses us in TLS", "cert= and key="],
    );
    // Also the last one is refused for what it is, not for how: with the right pair all is well.
    ask(pair(&files.client(), &files.client_key())).quiet(0);
    assert!(world.path("ran").exists());
}

fn urls() {
    let world = World::local();
    for (url, part) in [
        ("redis://", "it names no host"),
        ("redis://a,b", "several hosts"),
        ("redis://h:x", "port"),
        ("redis://:s3cr/et@h", "%XX"),
        ("redis://:s3cr?t@h", "%XX"),
        ("redis://h/zero", "database number"),
        ("redis://h/-1", "database number"),
        ("redis://h?prefx=a", "prefx"),
        ("redis://h?prefix={a}", "prefix"),
        ("redis://h?ca=/x", "rediss://"),
        ("rediss://h?cert=/x", "cert="),
        ("redis://%ff:x@h", "UTF-8"),
    ] {
        refused(&world, url, 78, &[part]);
    }
}

fn tokens() {
    let world = World::redis(Options::default());
    let ask =
        |above: &str| world.ask("run --above", &[above, "x", "--", "sh", "-c", "echo $FENCEPOST_TOKEN"]);
    for above in ["0", "-1", "x", "18446744073709551616", "1.5", ""] {
        ask(above).says(64, &["--above"]);
    }
    for above in ["9007199254740993", "9223372036854775808", "18446744073709551615"] {
        ask(above).says(64, &["cannot mint a token above", "the highest floor is"]);
    }
    let high = (1u64 << 52).to_string();
    let token: u64 = ask(&high).quiet(0).trim().parse().expect("a token");
    assert!(token > 1 << 52);
    // From here on every token is above, and each is still told from the next.
    let next: u64 = ask("1").quiet(0).trim().parse().expect("a token");
    assert!(next > token);
}
