//! Gates: a database's and a file's, shown tokens and looked after from the shell.

use std::fs;

use fencepost_lab::server::{
    Port, ignored,
    postgres::{Options, Postgres, installed},
};
use libtest_mimic::{Failed, Trial};

use crate::world::{Said, World};

pub(crate) fn trials() -> Vec<Trial> {
    let found = installed();
    let skip = ignored(&found);
    let over_database = |name: &str, options: Options, test: fn(&Shop)| {
        let found = found.clone();
        let run = move || {
            found.map_err(Failed::from)?;
            test(&Shop::open(options)?);
            Ok(())
        };
        Trial::test(format!("gate::{name}"), run).with_ignored_flag(skip)
    };
    let plain = |name: &str, test: fn(World)| {
        Trial::test(format!("gate::{name}"), move || {
            test(World::local());
            Ok(())
        })
    };
    let password = Options { password: Some("right word".into()), ..Options::default() };
    vec![
        over_database("a_database_from_its_installation_to_its_end", Options::default(), whole_life),
        over_database("a_job_needs_no_argument", Options::default(), under_run),
        over_database("a_takeover_waits_for_the_former_holder_within_a_limit", Options::default(), limit),
        over_database("a_password_comes_from_a_file", password, password_file),
        over_database("each_database_fault_has_its_sentence", Options::default(), database_faults),
        plain("a_file_is_written_by_the_latest_holder", file),
        plain("wrong_arguments", wrong_arguments),
    ]
}

/// A database, and the shell that speaks to it.
struct Shop {
    world: World,
    server: Postgres,
}

impl Shop {
    fn open(options: Options) -> Result<Self, Failed> {
        Ok(Self { world: World::local(), server: Postgres::start(options)? })
    }

    /// Runs `fencepost gate` with these words, at this database.
    fn gate(&self, words: &str) -> Said {
        self.world.ask(&format!("gate {words} --gate"), &[&self.server.url("postgres")])
    }

    fn psql(&self, sql: &str) -> String {
        self.server.psql("postgres", sql).expect("the server runs")
    }
}

fn whole_life(shop: &Shop) {
    shop.gate("show").says(78, &["the gate is not installed", "run `fencepost gate install`"]);
    assert_eq!(shop.gate("install").quiet(0), "");
    assert_eq!(shop.gate("install").quiet(0), "", "again");
    assert_eq!(shop.gate("show").quiet(0), "");
    assert_eq!(shop.gate("fence orders/1 --token 42 --lineage old").quiet(0), "");
    assert_eq!(shop.gate("admit orders/1 --token 42").quiet(0), "");
    let numbers = ["stale", "presented=41 highest=42 resource=orders/1", "--above", "gate rebind"];
    shop.gate("fence orders/1 --token 41").says(79, &numbers);
    shop.gate("admit orders/1 --token 41").says(79, &numbers);
    shop.gate("fence orders/1 --token 99 --lineage new")
        .says(78, &["another lineage", "presented=new recorded=old"]);
    let address = shop.server.addr();
    let shown = shop.gate("show orders/1").quiet(0);
    assert_eq!(shown, format!("orders/1\thighest 42, lineage old, at postgres://{address}/postgres\n"));
    let shown: serde_json::Value =
        serde_json::from_str(&shop.gate("show --json").quiet(0)).expect("one line of JSON");
    let gate = format!("postgres://{address}/postgres");
    assert_eq!(
        shown,
        serde_json::json!({ "resource": "orders/1", "gate": gate, "highest": "42", "lineage": "old" })
    );
    let shown: serde_json::Value =
        serde_json::from_str(&shop.gate("show nobody/knows --json").quiet(0)).expect("JSON");
    assert_eq!(shown["highest"], serde_json::Value::Null);

    // A row from before the rules for names were the same everywhere.
    shop.psql("INSERT INTO fencepost.guard VALUES ('a//b', 1)");
    assert_eq!(shop.gate("show").quiet(0).lines().count(), 2);
    shop.psql("DELETE FROM fencepost.guard WHERE resource = 'a//b'");

    shop.gate("rebind orders/1 --lineage new").says(64, &["give --yes"]);
    shop.gate("rebind orders/1 --lineage new --highest 7 --yes")
        .says(0, &["the gate had recorded highest 42, lineage old"]);
    shop.gate("fence orders/1 --token 6 --lineage new").says(79, &["highest=7"]);
    assert_eq!(shop.gate("fence orders/1 --token 7 --lineage new").quiet(0), "");

    shop.psql(
        "CREATE TABLE orders (id int); SELECT fencepost_protect('orders', 'orders/1'); CREATE ROLE app LOGIN",
    );
    shop.gate("write orders/1 --token 7").says(64, &["fencepost_admit"]);
    let as_app = shop.server.url_as("postgres", "app", "");
    let app = |words: &str| shop.world.ask(&format!("gate {words} --gate"), &[&as_app]);
    app("fence orders/1 --token 8 -q").says(77, &["--grant"]);
    assert_eq!(shop.gate("install --grant app").quiet(0), "");
    assert_eq!(app("fence orders/1 --token 8 -q").quiet(0), "");
    app("rebind orders/1 --yes -q").says(77, &["permission denied"]);
    app("install -q").says(77, &["belongs to the role postgres"]);

    shop.gate("uninstall").says(64, &["orders", "1 marks", "--yes"]);
    assert_eq!(shop.gate("uninstall --yes").quiet(0), "");
    shop.psql("INSERT INTO orders VALUES (1)");
    shop.gate("uninstall --yes").says(78, &["not installed"]);
    let printed = shop.world.ask("gate install --print", &[]).quiet(0);
    shop.psql(&format!("BEGIN; {printed} COMMIT"));
    assert_eq!(shop.gate("fence orders/1 --token 1").quiet(0), "");
}

fn under_run(shop: &Shop) {
    shop.gate("install").quiet(0);
    let url = shop.server.url("postgres");
    let script = format!(
        "export FENCEPOST_GATE='{url}'
         $FENCEPOST run orders/1 -- sh -c '
            $FENCEPOST gate fence && $FENCEPOST gate admit && $FENCEPOST gate show orders/1 && echo $FENCEPOST_TOKEN $FENCEPOST_LINEAGE' &&
         $FENCEPOST run orders/1 -- sh -c '$FENCEPOST gate fence'"
    );
    let said = shop.world.shell(&script);
    assert_eq!(said.code, 0, "{said:?}");
    let lines: Vec<&str> = said.out.lines().collect();
    let [shown, holder] = lines[..] else { panic!("{said:?}") };
    let (token, lineage) = holder.split_once(' ').expect("two words");
    assert!(shown.contains(&format!("highest {token}, lineage {lineage}")), "{said:?}");
    // The first holder is back, late.
    let late = format!(
        "FENCEPOST_GATE='{url}' FENCEPOST_LOCK=orders/1 FENCEPOST_TOKEN={token} FENCEPOST_LINEAGE='{lineage}' $FENCEPOST gate admit"
    );
    shop.world.shell(&late).says(79, &[&format!("presented={token}")]);
    let other = format!(
        "FENCEPOST_GATE='{url}' FENCEPOST_LOCK=orders/1 FENCEPOST_TOKEN={token} FENCEPOST_LINEAGE=other $FENCEPOST gate admit"
    );
    shop.world.shell(&other).says(78, &["another lineage"]);
}

fn limit(shop: &Shop) {
    shop.gate("install").quiet(0);
    shop.psql("SELECT fencepost_fence('x', 41)");
    let mut psql = std::process::Command::new(installed().expect("the server runs").join("psql"));
    let stalled =
        psql.arg(shop.server.url("postgres")).args(["-c", "SELECT fencepost_admit('x', 41), pg_sleep(60)"]);
    let quiet = std::process::Stdio::null;
    let mut stalled = stalled.stdout(quiet()).stderr(quiet()).spawn().expect("it is installed");
    crate::scene::until("a stalled holder", || {
        (shop.psql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == "1").then_some(())
    });
    shop.gate("fence x --token 42 --wait 200ms").says(69, &["did not answer within 200ms", "--wait"]);
    // Its session does not stay in the queue, which would keep the valid holder out.
    assert_eq!(shop.gate("admit x --token 41 --wait 10s").quiet(0), "");
    shop.psql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted");
    let _ = stalled.wait();
    assert_eq!(shop.gate("fence x --token 43").quiet(0), "");
}

fn password_file(shop: &Shop) {
    let address = shop.server.addr();
    let shown = shop.gate("install");
    shown.says(0, &["the password in --gate is visible", "?password_file=PATH"]);
    let file = shop.world.path("pass word");
    fs::write(&file, "right word\n").expect("the directory is ours");
    let at = |user: &str, parameters: &str| format!("postgres://{user}@{address}/postgres{parameters}");
    let with_file =
        at("postgres", &format!("?password_file={}", file.display().to_string().replace(' ', "%20")));
    assert_eq!(shop.world.ask("gate fence x --token 1 --gate", &[&with_file]).quiet(0), "");
    let script =
        |set: &str| format!("{set} $FENCEPOST gate fence x --token 1 --gate '{}'", at("postgres", ""));
    assert_eq!(shop.world.shell(&script("PGPASSWORD='right word'")).quiet(0), "");
    let said = shop.world.shell(&script("PGPASSWORD='wrong secret'"));
    assert!(!said.err.contains("secret"), "{said:?}");
    said.says(77, &["--gate:", "password authentication failed"]);
    fs::write(shop.world.path("pgpass"), format!("127.0.0.1:{}:*:postgres:right word\n", address.port()))
        .expect("ours");
    assert_eq!(shop.world.shell(&script("chmod 600 pgpass; PGPASSFILE=pgpass")).quiet(0), "");
    let no_file = at("postgres", "?password_file=/no/such/file");
    shop.world
        .ask("gate show --gate", &[&no_file])
        .says(78, &["--gate: cannot read the password's file", "path=/no/such/file"]);
}

fn database_faults(shop: &Shop) {
    let gate = |url: &str, words: &str| shop.world.ask(&format!("gate {words} --gate"), &[url]);
    gate(&shop.server.url("nothing"), "show").says(78, &["--gate:", "\"nothing\" does not exist"]);
    let port = Port::free().expect("a port");
    let url = format!("postgres://postgres@{}/postgres", port.addr());
    gate(&url, "show").says(69, &["--gate: the database was not reached"]);
    gate("postgres://no.such.host.invalid/postgres", "show").says(69, &["not reached"]);
    shop.gate("install").quiet(0);
    shop.gate("fence x --token 9223372036854775808").says(64, &["from 1 to 9223372036854775807"]);
    let plain = format!("{}?sslmode=require", shop.server.url("postgres"));
    gate(&plain, "show").says(69, &["encrypted", "sslmode"]);
    let unknown = format!("{}?colour=red", shop.server.url("postgres"));
    gate(&unknown, "show").says(78, &["unknown parameter", "parameter=colour"]);
    shop.psql("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'");
    assert_eq!(shop.gate("fence x --token 5").quiet(0), "", "whatever the database's default is");
    shop.psql("ALTER DATABASE postgres SET default_transaction_read_only = on");
    shop.gate("fence x --token 6").says(78, &["may write"]);
    shop.gate("fence y/../z --token 6").says(64, &["invalid resource name"]);
}

fn file(world: World) {
    let gate = format!("file:{}", world.path("stock").display());
    let ask = |words: &str| world.ask(&format!("gate {words} --gate"), &[&gate]);
    assert_eq!(ask("fence --token 41").quiet(0), "");
    assert_eq!(ask("admit --token 41").quiet(0), "");
    let write = |content: &str, token: u32| {
        world.shell(&format!("printf '{content}' | $FENCEPOST gate write --token {token} --gate '{gate}'"))
    };
    assert_eq!(write("99", 41).quiet(0), "");
    assert_eq!(ask("fence --token 42").quiet(0), "");
    write("98", 41).says(79, &["presented=41 highest=42"]);
    assert_eq!(fs::read_to_string(world.path("stock")).expect("it was written"), "99");
    let shown = ask("show").quiet(0);
    assert!(shown.contains("highest 42, at file:"), "{shown}");
    ask("fence orders/1 --token 42").says(64, &["leave the name out, resource=orders/1"]);
    ask("rebind --highest 7 --yes").says(0, &["the gate had recorded highest 42"]);
    assert_eq!(write("", 7).quiet(0), "");
    assert_eq!(fs::read_to_string(world.path("stock")).expect("it was written"), "");
    ask("install").says(64, &["needs no installation"]);
    // Under `run` the lock's name is not the file's.
    let script = format!("$FENCEPOST run x -- sh -c 'echo new | $FENCEPOST gate write --gate {gate}'");
    assert_eq!(world.shell(&script).quiet(0), "");
    assert_eq!(fs::read_to_string(world.path("stock")).expect("it was written"), "new\n");
}

fn wrong_arguments(world: World) {
    world.ask("gate fence x --token 1", &[]).says(64, &["no gate: give --gate"]);
    world
        .ask("gate fence x --token 1 --gate redis://h", &[])
        .says(78, &["--gate: no gate of this build", "file:/path"]);
    world.ask("gate fence x --token 1 --gate file:", &[]).says(78, &["--gate:"]);
    world.ask("gate fence --token 1 --gate postgres://h", &[]).says(64, &["no resource"]);
    world.ask("gate fence x --gate postgres://h", &[]).says(64, &["no token: give --token"]);
    for token in ["0", "-1", "18446744073709551616", "seven", "1.5", ""] {
        world.ask("gate fence x --gate postgres://h", &["--token", token]).says(64, &["invalid"]);
        let script = format!("FENCEPOST_TOKEN='{token}' $FENCEPOST gate fence x --gate postgres://h");
        world.shell(&script).says(64, &["token"]);
    }
    world.ask("gate", &[]).says(64, &[]);
    world.ask("gate fence x --token 1 --wait 5 --gate postgres://h", &[]).says(64, &["--wait"]);
    world
        .ask("gate fence x --token 1 --gate postgres://h:port/x", &[])
        .says(78, &["--gate:", "url is not valid"]);
}
