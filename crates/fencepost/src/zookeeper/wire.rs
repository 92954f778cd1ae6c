//! The encoding of ZooKeeper's protocol: big-endian numbers, and byte strings behind their length.
//!
//! Source: `zookeeper.jute` and the `BinaryOutputArchive` of Apache ZooKeeper 3.5 to 3.9.

/// The longest frame that we read: a server of the default settings sends none longer than a megabyte, save a list of
/// children.
pub(super) const MAX_FRAME: usize = 64 << 20;

/// Writes frames, each behind its length.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    /// Writes one frame: its length, and what `body` writes.
    pub(super) fn frame(&mut self, body: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.int(0);
        body(self);
        let length = (self.0.len() - start - 4) as u32;
        self.0[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    pub(super) fn bool(&mut self, yes: bool) {
        self.0.push(yes.into());
    }

    pub(super) fn int(&mut self, number: i32) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub(super) fn long(&mut self, number: i64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.int(bytes.len() as i32);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn strings<S: AsRef<str>>(&mut self, strings: &[S]) {
        self.int(strings.len() as i32);
        for string in strings {
            self.bytes(string.as_ref().as_bytes());
        }
    }
}

/// Reads what a server sent; `None` wherever it is shorter or longer than it says.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn bool(&mut self) -> Option<bool> {
        Some(self.take(1)?[0] != 0)
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// A byte string; one of length -1 stands for none.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        match self.int()? {
            -1 => Some(&[]),
            length => self.take(usize::try_from(length).ok()?),
        }
    }

    pub(super) fn string(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    pub(super) fn strings(&mut self) -> Option<Vec<String>> {
        let count = usize::try_from(self.int()?.max(0)).ok()?;
        // Not reserved by what a stranger claims.
        let mut strings = Vec::new();
        for _ in 0..count {
            strings.push(self.string()?);
        }
        Some(strings)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let mut writer = Writer::default();
        writer.frame(|w| {
            w.int(-7);
            w.long(i64::MIN);
            w.bool(true);
            w.bytes(b"ab");
            w.strings(&["x", "日本"]);
        });
        let mut reader = Reader(&writer.0);
        assert_eq!(reader.int(), Some(writer.0.len() as i32 - 4));
        assert_eq!((reader.int(), reader.long(), reader.bool()), (Some(-7), Some(i64::MIN), Some(true)));
        assert_eq!(reader.bytes(), Some(&b"ab"[..]));
        assert_eq!(reader.strings(), Some(vec!["x".to_owned(), "日本".to_owned()]));
        assert!(reader.0.is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_fail_otherwise(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Reader(&bytes).strings();
            let _ = Reader(&bytes).bytes();
            let _ = Reader(&bytes).string();
        }
    }
}
