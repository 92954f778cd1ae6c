//! The requests that we make of ZooKeeper, and its replies.
//!
//! Source: `zookeeper.jute`, `ZooDefs.OpCode` and `KeeperException.Code` of Apache ZooKeeper.

use super::{
    code::Code,
    wire::{Reader, Writer},
};

/// Who may do what with the nodes that we make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Acl {
    /// Everybody may do everything, as ZooKeeper's own tools have it.
    #[default]
    Open,
    /// Only who made a node.
    Creator,
    /// As `Creator`, and everybody may read.
    CreatorRead,
}

/// What a node's life hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Persistent,
    /// Removed by the server some time after its last child.
    Container,
    /// Bound to the session, with a number behind its name.
    EphemeralSequential,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Create {
        path: String,
        data: Vec<u8>,
        kind: Kind,
        acl: Acl,
    },
    Delete {
        path: String,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    SetData {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
    GetChildren {
        path: String,
    },
    /// Lets the server catch up with the leader before it answers what follows.
    Sync {
        path: String,
    },
    /// All of these or none.
    Multi(Vec<Request>),
    /// Fails unless the node is there, and of this version unless that is -1. Only within a [`Request::Multi`].
    Check {
        path: String,
        version: i32,
    },
    /// Watches all of these nodes again; tells of those that have changed since `zxid`, or are gone.
    SetWatches {
        zxid: i64,
        paths: Vec<String>,
    },
    CloseSession,
}

/// Every version.
pub(crate) const ANY_VERSION: i32 = -1;

const CLOSE: i32 = -11;
const SET_WATCHES: i32 = 101;
const MULTI: i32 = 14;

impl Request {
    /// What stands for the request in the protocol.
    fn code(&self) -> i32 {
        match self {
            Self::Create { kind: Kind::Container, .. } => 19,
            Self::Create { .. } => 15,
            Self::Delete { .. } => 2,
            Self::Exists { .. } => 3,
            Self::GetData { .. } => 4,
            Self::SetData { .. } => 5,
            Self::GetChildren { .. } => 8,
            Self::Sync { .. } => 9,
            Self::Check { .. } => 13,
            Self::Multi(_) => MULTI,
            Self::SetWatches { .. } => SET_WATCHES,
            Self::CloseSession => CLOSE,
        }
    }

    /// Writes the request as a frame with this number.
    pub(super) fn write(&self, writer: &mut Writer, xid: i32) {
        writer.frame(|writer| {
            writer.int(xid);
            writer.int(self.code());
            self.write_body(writer);
        });
    }

    fn write_body(&self, writer: &mut Writer) {
        match self {
            Self::Create { path, data, kind, acl } => {
                writer.bytes(path.as_bytes());
                writer.bytes(data);
                acl.write(writer);
                writer.int(match kind {
                    Kind::Persistent => 0,
                    Kind::EphemeralSequential => 3,
                    Kind::Container => 4,
                });
            }
            Self::Delete { path } => {
                writer.bytes(path.as_bytes());
                writer.int(ANY_VERSION);
            }
            Self::Exists { path, watch } | Self::GetData { path, watch } => {
                writer.bytes(path.as_bytes());
                writer.bool(*watch);
            }
            Self::SetData { path, data, version } => {
                writer.bytes(path.as_bytes());
                writer.bytes(data);
                writer.int(*version);
            }
            Self::GetChildren { path } => {
                writer.bytes(path.as_bytes());
                writer.bool(false);
            }
            Self::Sync { path } => writer.bytes(path.as_bytes()),
            Self::Check { path, version } => {
                writer.bytes(path.as_bytes());
                writer.int(*version);
            }
            Self::Multi(steps) => {
                for step in steps {
                    writer.int(step.code());
                    writer.bool(false);
                    writer.int(-1);
                    step.write_body(writer);
                }
                writer.int(-1);
                writer.bool(true);
                writer.int(-1);
            }
            Self::SetWatches { zxid, paths } => {
                writer.long(*zxid);
                writer.strings(paths);
                writer.strings::<&str>(&[]);
                writer.strings::<&str>(&[]);
            }
            Self::CloseSession => {}
        }
    }
}

impl Acl {
    fn write(self, writer: &mut Writer) {
        const READ: i32 = 1;
        const ALL: i32 = 31;
        let (world, creator) = (("world", "anyone"), ("auth", ""));
        let entries: &[(i32, (&str, &str))] = match self {
            Self::Open => &[(ALL, world)],
            Self::Creator => &[(ALL, creator)],
            Self::CreatorRead => &[(ALL, creator), (READ, world)],
        };
        writer.int(entries.len() as i32);
        for (rights, (scheme, id)) in entries {
            writer.int(*rights);
            writer.bytes(scheme.as_bytes());
            writer.bytes(id.as_bytes());
        }
    }
}

/// What ZooKeeper knows of a node, as far as we use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The number of the change that made it: larger for whatever is made later, anywhere in the ensemble.
    pub(crate) czxid: i64,
    /// How often its data was changed.
    pub(crate) version: i32,
    /// The session that it is bound to; 0 if to none.
    pub(crate) owner: i64,
    /// How many children it has.
    pub(crate) children: i32,
}

/// What a request is answered with: bytes to be read by whoever knows the request, or a refusal. `Debug` shows no bytes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Reply(pub(super) Result<Vec<u8>, Code>);

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Ok(body) => write!(f, "Reply({} bytes)", body.len()),
            Err(code) => write!(f, "Reply({code:?})"),
        }
    }
}

impl Reply {
    /// Whether it was done.
    pub(crate) fn done(&self) -> Result<(), Code> {
        self.0.as_ref().map(|_| ()).map_err(|code| *code)
    }

    /// The answer to `Exists`, `SetData`.
    pub(crate) fn stat(&self) -> Result<Stat, Code> {
        self.read(stat)
    }

    /// The answer to `Create`: the node's path and what is known of it.
    pub(crate) fn created(&self) -> Result<(String, Stat), Code> {
        self.read(|reader| Some((reader.string()?, stat(reader)?)))
    }

    /// The answer to `GetData`.
    pub(crate) fn data(&self) -> Result<(Vec<u8>, Stat), Code> {
        self.read(|reader| Some((reader.bytes()?.to_vec(), stat(reader)?)))
    }

    /// The answer to `GetChildren`: names without the path before them.
    pub(crate) fn children(&self) -> Result<Vec<String>, Code> {
        self.read(|reader| reader.strings())
    }

    /// The answer to a `Multi` of so many steps: done, or the place of the step that failed and why.
    pub(crate) fn steps(&self, expected: usize) -> Result<(), (usize, Code)> {
        let body = self.0.as_ref().map_err(|code| (0, *code))?;
        let strange = (0, Code::MARSHALLING);
        let mut reader = Reader(body);
        for step in 0.. {
            let (Some(kind), Some(done), Some(code)) = (reader.int(), reader.bool(), reader.int()) else {
                return Err(strange);
            };
            if done != (step == expected) {
                return Err(strange);
            }
            if done {
                break;
            }
            match kind {
                // A failed multi answers an error for each step: those before the culprit say "rolled back", which is 0.
                -1 => {
                    let _ = reader.int();
                    if code != 0 && Code(code) != Code::RUNTIME_INCONSISTENCY {
                        return Err((step, Code(code)));
                    }
                }
                1 | 15 | 19 => {
                    reader.string();
                    if kind != 1 {
                        stat(&mut reader);
                    }
                }
                5 => drop(stat(&mut reader)),
                _ => {}
            }
        }
        Ok(())
    }

    fn read<T>(&self, read: impl FnOnce(&mut Reader<'_>) -> Option<T>) -> Result<T, Code> {
        match &self.0 {
            Ok(body) => read(&mut Reader(body)).ok_or(Code::MARSHALLING),
            Err(code) => Err(*code),
        }
    }
}

fn stat(reader: &mut Reader<'_>) -> Option<Stat> {
    let czxid = reader.long()?;
    let _mzxid = reader.long()?;
    let _made_and_changed = (reader.long()?, reader.long()?);
    let version = reader.int()?;
    let _versions_of_children_and_acl = (reader.int()?, reader.int()?);
    let owner = reader.long()?;
    let _length = reader.int()?;
    let children = reader.int()?;
    let _pzxid = reader.long()?;
    Some(Stat { czxid, version, owner, children })
}
