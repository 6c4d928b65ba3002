//! What is said at the start: what is served, where, and a line to try it with.

use std::fmt;
use std::net::SocketAddr;

use crate::size::ByteSize;

/// What this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Worker,
}

/// Everything a person wants to know at the start.
#[derive(Debug)]
pub(crate) struct Banner {
    pub(crate) role: Role,
    pub(crate) model_name: String,
    pub(crate) model_summary: String,
    pub(crate) compute: String,
    pub(crate) kv_tokens: usize,
    pub(crate) kv_bytes: ByteSize,
    pub(crate) kv_dtype: &'static str,
    pub(crate) max_model_len: usize,
    pub(crate) address: SocketAddr,
    pub(crate) needs_key: bool,
    pub(crate) chats: bool,
    pub(crate) kv_events: Option<String>,
    pub(crate) drafts: String,
}

impl fmt::Display for Banner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doing = match self.role {
            Role::Server => "serves",
            Role::Worker => "is a worker for",
        };
        writeln!(
            out,
            "forespeak {} {doing} {}",
            env!("CARGO_PKG_VERSION"),
            self.model_name
        )?;
        writeln!(out, "  model      {}", self.model_summary)?;
        writeln!(out, "  compute    {}", self.compute)?;
        writeln!(
            out,
            "  KV cache   {} tokens in {} ({}), {} tokens a request at most",
            self.kv_tokens, self.kv_bytes, self.kv_dtype, self.max_model_len
        )?;
        writeln!(out, "  drafts     {}", self.drafts)?;
        if let Some(endpoint) = &self.kv_events {
            writeln!(out, "  KV events  {endpoint}")?;
        }
        writeln!(out, "  address    http://{}", self.address)?;
        writeln!(out)?;
        writeln!(out, "{}", self.curl())
    }
}

impl Banner {
    fn curl(&self) -> String {
        let key = if self.needs_key {
            " -H \"authorization: Bearer $API_KEY\""
        } else {
            ""
        };
        let (path, body) = if self.chats {
            (
                "/v1/chat/completions",
                r#"{"messages": [{"role": "user", "content": "What is a Kubernetes Pod?"}]}"#,
            )
        } else {
            (
                "/v1/completions",
                r#"{"prompt": "A Kubernetes Pod is", "max_tokens": 64}"#,
            )
        };
        format!(
            "  curl http://{}{path} -H 'content-type: application/json'{key} \\\n    -d '{body}'",
            self.reachable_address()
        )
    }

    /// "All addresses" is no address to send to.
    fn reachable_address(&self) -> SocketAddr {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banner() -> Banner {
        Banner {
            role: Role::Server,
            model_name: "m".into(),
            model_summary: "llama".into(),
            compute: "2 threads".into(),
            kv_tokens: 1024,
            kv_bytes: ByteSize(1 << 20),
            kv_dtype: "f16",
            max_model_len: 512,
            address: SocketAddr::from(([0, 0, 0, 0], 80)),
            needs_key: true,
            chats: true,
            kv_events: None,
            drafts: "off".into(),
        }
    }

    #[test]
    fn the_curl_line_fits_the_server() {
        let text = banner().to_string();
        assert!(
            text.contains("curl http://127.0.0.1:80/v1/chat/completions"),
            "{text}"
        );
        assert!(text.contains("Bearer $API_KEY"));
        let plain = Banner {
            needs_key: false,
            chats: false,
            ..banner()
        };
        let text = plain.to_string();
        assert!(
            text.contains("/v1/completions") && !text.contains("Bearer"),
            "{text}"
        );
    }
}
