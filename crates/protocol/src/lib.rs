//! What goes over the wire: OpenAI types, SSE codec, error bodies, KV events. No I/O.

pub mod kv_events;
