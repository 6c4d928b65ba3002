//! What the chunks of a stream have in common.
//!
//! A stream writes thousands of small JSON objects that differ in a few bytes. So the part before
//! `choices` is rendered once per stream, and a chunk is a few copies into one buffer.

use std::io::Write;

use crate::finish::Finish;
use crate::json;
use crate::stream::StreamOptions;
use crate::usage::Usage;

/// Renders the frame around the choices of every chunk.
#[derive(Debug, Clone)]
pub struct ChunkFrame {
    head: Vec<u8>,
    options: StreamOptions,
}

impl ChunkFrame {
    /// The frame of one stream. `created` is in seconds since the Unix epoch.
    pub fn new(object: &str, id: &str, created: u64, model: &str, options: StreamOptions) -> Self {
        let mut head = Vec::with_capacity(128);
        head.extend_from_slice(b"data: {\"id\":");
        json::write(&mut head, id);
        head.extend_from_slice(b",\"object\":");
        json::write(&mut head, object);
        head.extend_from_slice(b",\"created\":");
        json::write(&mut head, &created);
        head.extend_from_slice(b",\"model\":");
        json::write(&mut head, model);
        head.extend_from_slice(b",\"choices\":[");
        Self { head, options }
    }

    /// Appends a chunk with one choice that `choice` appends as a JSON object.
    pub(crate) fn chunk(
        &self,
        out: &mut Vec<u8>,
        so_far: &Usage,
        choice: impl FnOnce(&mut Vec<u8>),
    ) {
        out.extend_from_slice(&self.head);
        choice(out);
        out.push(b']');
        if self.options.continuous_usage_stats {
            out.extend_from_slice(b",\"usage\":");
            json::write(out, so_far);
        } else if self.options.include_usage {
            out.extend_from_slice(b",\"usage\":null");
        }
        out.extend_from_slice(b"}\n\n");
    }

    /// Appends the last chunk, which carries the usage and no choice, if it was asked for.
    pub fn usage(&self, out: &mut Vec<u8>, usage: &Usage) {
        if self.options.include_usage {
            out.extend_from_slice(&self.head);
            out.extend_from_slice(b"],\"usage\":");
            json::write(out, usage);
            out.extend_from_slice(b"}\n\n");
        }
    }
}

pub(crate) fn write_index(out: &mut Vec<u8>, index: usize) {
    out.extend_from_slice(b"{\"index\":");
    // Writing to memory cannot fail.
    let _ = write!(out, "{index}");
}

/// The fields that end a choice in both routes.
pub(crate) fn write_finish(out: &mut Vec<u8>, finish: Option<&Finish>) {
    match finish {
        None => out.extend_from_slice(b",\"finish_reason\":null"),
        Some(finish) => {
            out.extend_from_slice(b",\"finish_reason\":\"");
            out.extend_from_slice(finish.reason.as_str().as_bytes());
            out.extend_from_slice(b"\",\"stop_reason\":");
            json::write(out, &finish.stop);
        }
    }
}

pub(crate) fn write_token_ids(out: &mut Vec<u8>, token_ids: Option<&[u32]>) {
    if let Some(ids) = token_ids {
        out.extend_from_slice(b",\"token_ids\":");
        json::write(out, ids);
    }
}
