//! Operations under a pass.

use std::fmt;

use super::{EtcdGate, MarkKeys, digits, found, mark};
use crate::{
    error::{Error, ErrorKind},
    etcd::{
        CompareResult, RequestOp, Response, TxnRequest, TxnResponse, delete, first_by_creation, nested, put,
        range, value_is,
    },
    gate::{OtherLineage, Pass, Refusal, Stale},
};

/// What can be done under a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads a key.
    Get(Vec<u8>),
    /// Puts a value at a key.
    Put(Vec<u8>, Vec<u8>),
    /// Removes a key.
    Delete(Vec<u8>),
}

/// What came of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value at the key, if it is there.
    Value(Option<Vec<u8>>),
    /// It was put.
    Put,
    /// Whether there was something to remove.
    Deleted(bool),
}

/// The way through an [`EtcdGate`] that one pass has opened; a later holder closes it.
#[derive(Clone)]
pub struct OpenEtcd {
    gate: EtcdGate,
    resource: String,
    keys: MarkKeys,
    pass: Pass,
}

impl OpenEtcd {
    pub(super) fn new(gate: EtcdGate, resource: String, keys: MarkKeys, pass: Pass) -> Self {
        Self { gate, resource, keys, pass }
    }

    /// Carries out these operations in one step with the check: all of them, or none.
    ///
    /// # Errors
    ///
    /// As [`EtcdGate::open`], and then none is carried out; `Invalid` if one names the mark's keys, or two put the same key.
    /// `Unknown` if the reply was lost: they may have been.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped call may or may not have been carried out.
    pub async fn run(&self, operations: Vec<Operation>) -> Result<Vec<Answer>, Error> {
        self.check(&operations)?;
        let MarkKeys { highest, lineage, prefix } = &self.keys;
        let mut accepted = vec![put(highest, digits(self.pass.token).into_bytes(), 0)];
        accepted.extend(self.pass.lineage.as_ref().map(|own| put(lineage, own.as_str().into(), 0)));
        let before = accepted.len();
        accepted.extend(operations.iter().map(request));
        // Lineage first, then the number, as `Mark::decide` has it.
        let by_number = TxnRequest {
            compare: vec![value_is(CompareResult::Greater, highest, digits(self.pass.token))],
            success: self.keys.look(),
            failure: accepted,
        };
        let ask = match &self.pass.lineage {
            None => by_number,
            Some(own) => TxnRequest {
                compare: vec![value_is(CompareResult::NotEqual, lineage, own.as_str())],
                success: self.keys.look(),
                failure: vec![nested(by_number)],
            },
        };
        let reply = self.gate.ask(ask, prefix).await?;
        let inner = match reply.responses.first().and_then(|answer| answer.response.as_ref()) {
            Some(Response::Txn(inner)) if !reply.succeeded => inner,
            _ if self.pass.lineage.is_none() => &reply,
            _ => return Err(self.refused(&reply)),
        };
        if inner.succeeded {
            return Err(self.refused(inner));
        }
        Ok(operations
            .iter()
            .enumerate()
            .map(|(place, operation)| answer(operation, inner, before + place))
            .collect())
    }

    /// The value at a key.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run): a holder that has a successor is told when it reads, too.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        match self.run(vec![Operation::Get(key.as_ref().into())]).await?.pop() {
            Some(Answer::Value(value)) => Ok(value),
            _ => Ok(None),
        }
    }

    /// Puts a value at a key.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.run(vec![Operation::Put(key.as_ref().into(), value.as_ref().into())]).await.map(drop)
    }

    /// Removes a key; true if it was there.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn del(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let answers = self.run(vec![Operation::Delete(key.as_ref().into())]).await?;
        Ok(answers == [Answer::Deleted(true)])
    }

    /// An operation that would change the mark, or that etcd would refuse together with another.
    fn check(&self, operations: &[Operation]) -> Result<(), Error> {
        let invalid = |text: String| Err(Error::new(ErrorKind::Invalid, text));
        let mut written = std::collections::BTreeSet::new();
        for operation in operations {
            let (Operation::Get(key) | Operation::Put(key, _) | Operation::Delete(key)) = operation;
            if key.is_empty() {
                return invalid("the key is empty: name one".into());
            }
            if *key == self.keys.highest || *key == self.keys.lineage {
                return invalid(format!(
                    "the key is the gate's own mark: name another, key={}",
                    key.escape_ascii()
                ));
            }
            if !matches!(operation, Operation::Get(_)) && !written.insert(key) {
                return invalid(format!(
                    "the key is written twice in one step: write it once, key={}",
                    key.escape_ascii()
                ));
            }
        }
        Ok(())
    }

    fn refused(&self, reply: &TxnResponse) -> Error {
        let recorded = match mark(reply, &self.keys.prefix) {
            Ok(recorded) => recorded,
            Err(error) => return error,
        };
        // The server has decided; here its decision is only put into words.
        let refusal = match (recorded.lineage, &self.pass.lineage, recorded.highest) {
            (Some(recorded), Some(own), _) if recorded != *own => {
                Refusal::OtherLineage(OtherLineage { presented: own.clone(), recorded })
            }
            (_, _, Some(highest)) => Refusal::Stale(Stale { presented: self.pass.token, highest }),
            _ => {
                return Error::new(
                    ErrorKind::Internal,
                    format!("etcd refused without a mark, key={}", self.keys.prefix),
                );
            }
        };
        refusal.at(&self.resource)
    }
}

fn request(operation: &Operation) -> RequestOp {
    match operation {
        Operation::Get(key) => range(first_by_creation(key, &[])),
        Operation::Put(key, value) => put(key, value.clone(), 0),
        Operation::Delete(key) => delete(key),
    }
}

fn answer(operation: &Operation, reply: &TxnResponse, place: usize) -> Answer {
    match operation {
        Operation::Get(_) => Answer::Value(found(reply, place).map(|row| row.value.clone())),
        Operation::Put(..) => Answer::Put,
        Operation::Delete(_) => {
            let done = reply.responses.get(place).and_then(|answer| answer.response.as_ref());
            Answer::Deleted(matches!(done, Some(Response::DeleteRange(done)) if done.deleted > 0))
        }
    }
}

impl fmt::Debug for OpenEtcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenEtcd")
            .field("resource", &self.resource)
            .field("pass", &self.pass)
            .finish_non_exhaustive()
    }
}
