//! The program against a real node: `felixctl dev` in one process, commands in others.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod backup;
mod golden;
mod life;
mod node;
mod people;
mod readings;
mod records;
