//! Templates of a namespace.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Commands on templates.
#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// List the templates of the namespace
    #[command(visible_alias = "list")]
    Ls,
    /// Show one template, as JSON that `set --file` takes
    #[command(visible_alias = "info")]
    Show {
        /// The template
        template: String,
    },
    /// Set what a room consists of
    Set(TemplateSet),
    /// Make the streams and caches of a room that are missing
    Open {
        /// The template
        template: String,
        /// The room: letters, digits, `_` and `-`
        scope: String,
    },
    /// Remove a template; its rooms stay
    Rm {
        /// The template
        template: String,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

/// Set a template. It replaces one of the same name.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  felixctl namespace template set board --prefix board- --stream edits --memory-stream cursors \\
    --memory-cache presence --cache snapshot
  felixctl namespace template show board > board.json
  felixctl namespace template set board --file board.json

The room `plans` of the first has the streams board-plans-edits and board-plans-cursors. Who opens
a room needs `template.use` over the namespace and a right to use each part of the room.")]
pub struct TemplateSet {
    /// Name of the template
    pub template: String,
    /// What the names of a room's streams and caches begin with
    #[arg(long, value_name = "PREFIX", required_unless_present = "file")]
    pub prefix: Option<String>,
    /// A durable stream of each room; may come several times
    #[arg(long = "stream", value_name = "NAME")]
    pub streams: Vec<String>,
    /// A stream of each room that is kept in memory
    #[arg(long = "memory-stream", value_name = "NAME")]
    pub memory_streams: Vec<String>,
    /// A durable cache of each room; counters live in caches, too
    #[arg(long = "cache", value_name = "NAME")]
    pub caches: Vec<String>,
    /// A cache of each room that is kept in memory
    #[arg(long = "memory-cache", value_name = "NAME")]
    pub memory_caches: Vec<String>,
    /// How many rooms there may be at a time [default: 1000]
    #[arg(long, value_name = "N")]
    pub rooms_max: Option<u32>,
    /// All of it from a JSON file, with every setting that streams and caches have
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prefix", "streams", "memory_streams", "caches", "memory_caches", "rooms_max"])]
    pub file: Option<PathBuf>,
}
