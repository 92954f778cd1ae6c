//! Scenes: a failure of locks, played on real servers by real processes, recorded, judged and drawn.
//!
//! Each scene is one or more [acts](Act). An act starts the servers that it needs on loopback ports of its own, lets two
//! *separate* client processes sell from one stock, stops one of them where it hurts, and records a history. The
//! [checker](crate::checker) judges the history; the scene came out as expected only if it broke exactly the promises that the
//! act says are broken.
//!
//! - `act` says what is played, `programme` lists the scenes;
//! - `stage` has servers and directory, `play` directs, `worker` is what a client process does;
//! - `shelf` is where the stock lies, `textbook` the lock that everybody writes first;
//! - `outcome` judges, `words` says it, [`timeline`] draws it, `page` puts that together.

mod act;
mod outcome;
mod page;
mod play;
mod programme;
mod shelf;
mod stage;
mod textbook;
pub mod timeline;
mod words;
mod worker;

pub use act::{Act, Expected, Gate, Late, Lock, Store, Turn};
pub use outcome::{Outcome, judge};
pub use page::{act_heading, moral, result, scene_heading};
pub use play::play;
pub use programme::{DEMO, ORDER, PAUSE, PAUSE_GATED, PAUSE_WRITES_ONLY, SCENES, Scene};
pub use stage::{Cast, Stage, Trouble};
pub use worker::work;
