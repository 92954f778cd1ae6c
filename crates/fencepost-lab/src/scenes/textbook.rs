//! The Redis lock as it is usually written: a key with a random value and a time to live.
//!
//! It is right about the value and about the script, and it has no token: nothing that it protects can tell a late holder
//! from the present one.

use std::thread;
use std::time::Duration;

use redis::{Connection, RedisResult, Script};

/// How often it asks again while the lock is taken.
const POLL: Duration = Duration::from_millis(50);

const RELEASE: &str = r#"
if redis.call("get", KEYS[1]) == ARGV[1] then
    return redis.call("del", KEYS[1])
end
return 0
"#;

/// A lock that was taken.
pub(super) struct Textbook {
    connection: Connection,
    key: String,
    value: String,
}

impl Textbook {
    /// Waits for the lock.
    pub(super) fn acquire(url: &str, name: &str, value: String, ttl: Duration) -> RedisResult<Self> {
        let mut connection = redis::Client::open(url)?.get_connection()?;
        let key = format!("lock:{name}");
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(&value).arg("NX").arg("PX").arg(ttl.as_millis() as u64);
        while set.query::<Option<String>>(&mut connection)?.is_none() {
            thread::sleep(POLL);
        }
        Ok(Self { connection, key, value })
    }

    /// Gives it back; false if it had gone to somebody else.
    pub(super) fn release(mut self) -> RedisResult<bool> {
        Script::new(RELEASE).key(&self.key).arg(&self.value).invoke(&mut self.connection)
    }
}
