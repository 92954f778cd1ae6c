//! The gate in memory.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use fencepost::{
    Error, Token,
    conformance::{Hook, NotApplicable},
    gate::{
        Mark, MemoryGate, Pass,
        conformance::{Client, Crash, Harness, Transaction},
    },
};

/// One gate for each resource.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<HashMap<String, Arc<MemoryGate<String>>>>>);

pub(crate) fn fresh() -> Result<Box<dyn Harness>, String> {
    Ok(Box::new(Memory::default()))
}

impl Memory {
    fn gate(&self, resource: &str) -> Arc<MemoryGate<String>> {
        let mut gates = self.0.lock().expect("no panic inside");
        gates.entry(resource.into()).or_insert_with(|| Arc::new(MemoryGate::new(String::new()))).clone()
    }
}

impl Harness for Memory {
    fn connect(&self) -> Result<Box<dyn Client>, Error> {
        Ok(Box::new(self.clone()))
    }

    fn largest(&self) -> Token {
        Token::new(u64::MAX).expect("not zero")
    }

    fn restart(&self) -> Hook {
        NotApplicable::new("the value ends with its process")
    }

    fn crash(&self, _: &str, _: &Pass, _: &str, _: usize) -> Hook<Crash> {
        NotApplicable::new("the value ends with its process")
    }

    fn residue(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Client for Memory {
    fn fence(&self, resource: &str, pass: &Pass) -> Result<(), Error> {
        self.gate(resource).fence(pass)
    }

    fn read(&self, resource: &str, pass: &Pass) -> Result<String, Error> {
        self.gate(resource).open(pass)?.read()
    }

    fn write(&self, resource: &str, pass: &Pass, text: &str) -> Result<(), Error> {
        self.gate(resource).open(pass)?.write(text.into())
    }

    fn peek(&self, resource: &str) -> Result<String, Error> {
        // The only way past this gate is to stand where its mark does.
        let gate = self.gate(resource);
        match gate.mark().highest {
            Some(highest) => gate.open(highest)?.read(),
            None => Ok(String::new()),
        }
    }

    fn mark(&self, resource: &str) -> Result<Mark, Error> {
        Ok(self.gate(resource).mark())
    }

    fn rebind(&self, resource: &str, mark: &Mark) -> Result<(), Error> {
        self.gate(resource).rebind(mark.clone());
        Ok(())
    }

    fn begin(&self, _: &str) -> Hook<Result<Box<dyn Transaction + '_>, Error>> {
        NotApplicable::new("no transactions: the change is one step with its check")
    }
}
