//! What is watched, and who is told: one stream for all claims of a locker.
//!
//! Whatever is to be watched stands in a table, with the revision from which on. A stream is opened when somebody needs it, and asks for
//! all of the table; so a stream that breaks loses nothing, as long as the server still remembers that far back.
//!
//! There is no timer here. A stream that breaks early is opened by whoever needs it next: until it has proved itself for a
//! moment, those who wait are told to ask again soon ([`Watches::recheck`]).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use prost::Message;
use tokio::sync::{Notify, mpsc, oneshot};

use super::{enter::Seat, keys::end_of};
use crate::{
    claim::Claim,
    etcd::{
        EventType, Events, Transport, WatchAsk, WatchCancel, WatchCreate, WatchFilter, WatchRequest,
        WatchResponse,
    },
    host::{Host, Moment},
};

/// How often those ask who are told of their turn: only in case that a server forgets to tell.
const RARELY: Duration = Duration::from_secs(30);

/// How often those ask who may not be told, and how long a stream is new.
const OFTEN: Duration = Duration::from_secs(1);

pub(super) struct Watches {
    transport: Arc<dyn Transport>,
    host: Arc<dyn Host>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    watches: HashMap<i64, Watch>,
    by_key: HashMap<Vec<u8>, i64>,
    last_id: i64,
    line: Option<Line>,
    last_line: u64,
}

struct Watch {
    key: Vec<u8>,
    after: i64,
    ears: Vec<Ear>,
}

/// Who is told of a key's end.
#[derive(Clone)]
pub(super) enum Ear {
    /// The claim whose key it is.
    Own(Weak<Claim>),
    /// The claim behind it.
    Ahead(Weak<Claim>),
    /// An observer of the whole line.
    Hint(Weak<Notify>),
}

impl Ear {
    pub(super) fn own(claim: &Arc<Claim>) -> Self {
        Self::Own(Arc::downgrade(claim))
    }

    pub(super) fn ahead(claim: &Arc<Claim>) -> Self {
        Self::Ahead(Arc::downgrade(claim))
    }

    fn is_of(&self, claim: &Arc<Claim>) -> bool {
        matches!(self, Self::Own(ear) | Self::Ahead(ear) if ear.as_ptr() == Arc::as_ptr(claim))
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own(a), Self::Own(b)) | (Self::Ahead(a), Self::Ahead(b)) => a.ptr_eq(b),
            _ => false,
        }
    }

    fn is_alive(&self) -> bool {
        match self {
            Self::Own(claim) | Self::Ahead(claim) => claim.strong_count() > 0,
            Self::Hint(hint) => hint.strong_count() > 0,
        }
    }
}

/// The stream, from the moment at which it is asked for.
struct Line {
    id: u64,
    asks: mpsc::UnboundedSender<Vec<u8>>,
    born: Moment,
    is_open: bool,
    /// The server lets us watch nothing on it: the user lacks the right, or the stream came with an outdated login.
    is_deaf: bool,
    /// Somebody was told to ask rarely.
    is_relied_on: bool,
    /// Dropped, it ends the task that reads.
    _end: oneshot::Sender<()>,
}

impl Watches {
    pub(super) fn new(transport: Arc<dyn Transport>, host: Arc<dyn Host>) -> Arc<Self> {
        Arc::new(Self { transport, host, table: Mutex::default() })
    }

    /// Lets `ear` be told of what happens to `key` after this revision.
    pub(super) fn add(&self, key: &[u8], after: i64, ear: Ear) {
        let mut table = self.table();
        if let Some(watch) = table.by_key.get(key).copied().and_then(|id| table.watches.get_mut(&id)) {
            // Observers come and go, and a quiet line would keep them all.
            watch.ears.retain(Ear::is_alive);
            if !watch.ears.iter().any(|other| other.is_same(&ear)) {
                watch.ears.push(ear);
            }
            return;
        }
        table.last_id += 1;
        let (id, watch) = (table.last_id, Watch { key: key.to_vec(), after, ears: vec![ear] });
        if let Some(line) = &table.line {
            line.ask(create(id, &watch));
        }
        table.by_key.insert(key.to_vec(), id);
        table.watches.insert(id, watch);
    }

    /// Tells `claim` no more of `key`.
    pub(super) fn forget(&self, key: &[u8], claim: &Arc<Claim>) {
        let mut table = self.table();
        let Some(id) = table.by_key.get(key).copied() else { return };
        let Some(watch) = table.watches.get_mut(&id) else { return };
        watch.ears.retain(|ear| !ear.is_of(claim));
        if watch.ears.is_empty() {
            table.drop_watch(id);
        }
    }

    /// Whether `claim` is told of what happens to `key`, or will be by the next stream.
    pub(super) fn tells(&self, claim: &Arc<Claim>, key: &[u8]) -> bool {
        let table = self.table();
        let watch = table.by_key.get(key).and_then(|id| table.watches.get(id));
        watch.is_some_and(|watch| watch.ears.iter().any(|ear| ear.is_of(claim)))
    }

    /// Opens the stream if there is none and something to watch.
    pub(super) fn open(self: &Arc<Self>) {
        self.open_relied_on(false);
    }

    fn open_relied_on(self: &Arc<Self>, is_relied_on: bool) {
        let mut table = self.table();
        let now = self.host.now();
        let is_of_use = |line: &Line| !line.is_deaf || now.since(line.born) < RARELY;
        if table.line.as_ref().is_some_and(is_of_use) || table.watches.is_empty() {
            return;
        }
        table.forget_the_dead();
        let (asks, asked) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        table.last_line += 1;
        let id = table.last_line;
        let line = Line { id, asks, born: now, is_open: false, is_deaf: false, is_relied_on, _end: end };
        for (id, watch) in &table.watches {
            line.ask(create(*id, watch));
        }
        table.line = Some(line);
        drop(table);
        let (transport, watches) = (self.transport.clone(), Arc::downgrade(self));
        self.host.spawn(Box::pin(async move {
            let reading = async {
                let Ok(mut events) = transport.watch(asked).await else { return };
                drop(transport);
                read(&watches, id, &mut *events).await;
            };
            tokio::select! {
                biased;
                _ = ended => return,
                () = reading => {}
            }
            if let Some(watches) = watches.upgrade() {
                watches.closed(id);
            }
        }));
    }

    /// How long to wait for a poke before asking.
    pub(super) fn recheck(&self) -> Duration {
        let now = self.host.now();
        match &mut self.table().line {
            Some(line) if line.has_proved_itself(now) => {
                line.is_relied_on = true;
                RARELY
            }
            _ => OFTEN,
        }
    }

    /// The number of the latest stream. The first one counts as there before it is opened: what was granted earlier is watched
    /// from its grant on.
    pub(super) fn latest(&self) -> u64 {
        self.table().last_line.max(1)
    }

    /// The number of the stream that tells, if there is one that has proved itself.
    pub(super) fn proved(&self) -> Option<u64> {
        let now = self.host.now();
        self.table().line.as_ref().filter(|line| line.has_proved_itself(now)).map(|line| line.id)
    }

    fn closed(self: &Arc<Self>, id: u64) {
        let mut table = self.table();
        let Some(line) = table.line.take_if(|line| line.id == id) else { return };
        let now = self.host.now();
        let (is_proved, is_relied_on) = (line.has_proved_itself(now), line.is_relied_on);
        let everybody = if is_relied_on && !is_proved { table.everybody() } else { Vec::new() };
        drop(table);
        if is_proved {
            // From where it broke on: nobody need ask for what may have happened meanwhile.
            self.open_relied_on(is_relied_on);
        }
        everybody.iter().for_each(hint);
    }

    fn heard(&self, line: u64, message: &WatchResponse) {
        let mut table = self.table();
        if table.line.as_ref().is_none_or(|present| present.id != line) {
            return;
        }
        if let Some(line) = &mut table.line {
            line.is_open = true;
        }
        if message.canceled && message.watch_id < 0 {
            // Newer servers do not say which watch they refuse: nobody can rely on this stream.
            if let Some(line) = &mut table.line {
                line.is_deaf = true;
            }
            let everybody = table.everybody();
            drop(table);
            everybody.iter().for_each(missed);
            return;
        }
        let Some(watch) = table.watches.get(&message.watch_id) else { return };
        let ears = watch.ears.clone();
        if message.canceled {
            let is_compacted = message.compact_revision > 0;
            if let Some(line) = &mut table.line {
                // Everything works but for being told.
                line.is_deaf |= !is_compacted;
            }
            table.drop_watch(message.watch_id);
            drop(table);
            ears.iter().for_each(missed);
            return;
        }
        let ends = |event: &crate::etcd::Event| event.r#type == i32::from(EventType::Delete);
        let is_line = ears.iter().any(|ear| matches!(ear, Ear::Hint(_)));
        let is_over =
            if is_line { ears.iter().all(|ear| !ear.is_alive()) } else { message.events.iter().any(ends) };
        if is_over {
            table.drop_watch(message.watch_id);
        }
        drop(table);
        if is_line && !message.events.is_empty() || is_over {
            ears.iter().for_each(tell);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(watches: &Weak<Watches>, line: u64, events: &mut dyn Events) {
    while let Some(message) = events.next().await {
        let (Some(watches), Ok(message)) = (watches.upgrade(), WatchResponse::decode(message.as_slice()))
        else {
            return;
        };
        watches.heard(line, &message);
    }
}

impl Line {
    fn ask(&self, ask: WatchAsk) {
        if self.is_deaf {
            return;
        }
        // The other side is gone only when the stream is over, and the next one asks for all.
        let _ = self.asks.send(WatchRequest { ask: Some(ask) }.encode_to_vec());
    }

    fn has_proved_itself(&self, now: Moment) -> bool {
        self.is_open && !self.is_deaf && now.since(self.born) >= OFTEN
    }
}

impl Table {
    fn drop_watch(&mut self, id: i64) {
        let Some(watch) = self.watches.remove(&id) else { return };
        self.by_key.remove(&watch.key);
        if let Some(line) = &self.line {
            line.ask(WatchAsk::Cancel(WatchCancel { watch_id: id }));
        }
    }

    /// Drops claims whose leave was never answered.
    fn forget_the_dead(&mut self) {
        let by_key = &mut self.by_key;
        self.watches.retain(|_, watch| {
            watch.ears.retain(Ear::is_alive);
            let is_wanted = !watch.ears.is_empty();
            if !is_wanted {
                by_key.remove(&watch.key);
            }
            is_wanted
        });
    }

    fn everybody(&self) -> Vec<Ear> {
        self.watches.values().flat_map(|watch| watch.ears.iter().cloned()).collect()
    }
}

fn create(id: i64, watch: &Watch) -> WatchAsk {
    let is_line = watch.ears.iter().any(|ear| matches!(ear, Ear::Hint(_)));
    WatchAsk::Create(WatchCreate {
        key: watch.key.clone(),
        range_end: if is_line { end_of(&watch.key) } else { Vec::new() },
        start_revision: watch.after.saturating_add(1),
        filters: if is_line { Vec::new() } else { vec![WatchFilter::NoPut.into()] },
        watch_id: id,
    })
}

/// The key is gone, or the line has changed.
fn tell(ear: &Ear) {
    match ear {
        Ear::Own(claim) => {
            if let Some(claim) = claim.upgrade() {
                claim.gone();
            }
        }
        other => hint(other),
    }
}

/// Something may have happened.
fn hint(ear: &Ear) {
    match ear {
        Ear::Own(claim) | Ear::Ahead(claim) => {
            if let Some(claim) = claim.upgrade() {
                claim.poke();
            }
        }
        Ear::Hint(hint) => {
            if let Some(hint) = hint.upgrade() {
                hint.notify_one();
            }
        }
    }
}

/// The watch was refused, or asked for more of the past than the server keeps: what has happened since must be looked up.
fn missed(ear: &Ear) {
    if let Ear::Own(claim) = ear
        && let Some(claim) = claim.upgrade()
    {
        claim.seat(|seat: &mut Seat| seat.is_unwatched = true);
    }
    hint(ear);
}
