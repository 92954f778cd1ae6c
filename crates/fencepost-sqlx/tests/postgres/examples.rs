//! The examples of other languages, as their readers would run them.

use std::path::PathBuf;
use std::process::{Command, Output};

use fencepost_lab::server::{ignored, peers};

use crate::{Test, world::World};

pub(crate) const PSQL: &[Test] = &[("examples::psql", psql)];
pub(crate) const PYTHON: &[Test] = &[("examples::python", python)];

pub(crate) fn python_is_missing() -> bool {
    ignored(&peers::python("psycopg"))
}

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/gates").join(name)
}

/// A shop with one order, which `ship` is to ship under a token.
fn ships(world: &World, ship: impl Fn(&str) -> Output) {
    world.run(async {
        world.psql(
            "CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL); INSERT INTO orders VALUES (4821, 'paid'), (4822, 'paid');
             SELECT fencepost_protect_rows('orders', 'id', 'orders/')",
        );
        world.psql("SELECT fencepost_fence('orders/4821', 42)");
        let late = ship("41");
        let said = String::from_utf8_lossy(&late.stderr).into_owned();
        assert!(!late.status.success() && said.contains("stale") && said.contains("presented=41 highest=42"), "{late:?}");
        assert_eq!(world.psql("SELECT state FROM orders WHERE id = 4821"), "paid");
        for _ in 0..2 {
            let shipped = ship("42");
            assert!(shipped.status.success(), "{shipped:?}");
        }
        assert_eq!(world.psql("SELECT * FROM orders ORDER BY id"), "4821|shipped\n4822|paid");
        assert!(!ship("seven").status.success());
    });
}

fn psql(world: World) {
    let program = fencepost_lab::server::postgres::installed().expect("the server runs").join("psql");
    ships(&world, |token| {
        let mut psql = Command::new(&program);
        psql.args(["-X", "-v", "lock=orders/4821", "-v", &format!("token={token}"), "-f"]);
        psql.arg(example("ship.sql")).arg(world.url()).output().expect("it is installed")
    });
    let late = Command::new(&program)
        .args(["-X", "-v", "lock=orders/4821", "-v", "token=41", "-f"])
        .arg(example("ship.sql"))
        .arg(world.url())
        .output()
        .expect("it is installed");
    assert!(String::from_utf8_lossy(&late.stderr).contains("ERROR:  FP001:"), "{late:?}");
    assert_eq!(late.status.code(), Some(3));
}

fn python(world: World) {
    let psycopg = peers::python("psycopg").expect("it is installed");
    let ship = |token: &str| {
        let mut python = psycopg.command();
        python.arg(example("ship.py")).arg(world.url());
        python.env("FENCEPOST_LOCK", "orders/4821").env("FENCEPOST_TOKEN", token);
        python.output().expect("it is installed")
    };
    ships(&world, ship);
    assert_eq!(ship("41").status.code(), Some(79));
}
