//! What is said at the start: what is served, where, and a line to try it with.

use std::fmt;
use std::net::SocketAddr;

/// What this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Worker,
}

/// Everything a person wants to know at the start.
#[derive(Debug)]
pub(crate) struct Banner {
    /// What it does, after name and version.
    pub(crate) title: String,
    /// What else there is to know, each with its label.
    pub(crate) lines: Vec<(&'static str, String)>,
    pub(crate) address: SocketAddr,
    /// The model to ask for, where one must be named.
    pub(crate) ask_for: Option<String>,
    pub(crate) needs_key: bool,
    pub(crate) chats: bool,
}

impl fmt::Display for Banner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "forespeak {} {}",
            env!("CARGO_PKG_VERSION"),
            self.title
        )?;
        for (label, text) in &self.lines {
            writeln!(out, "  {label:<10} {text}")?;
        }
        writeln!(out, "  {:<10} http://{}", "address", self.address)?;
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
        let model = self
            .ask_for
            .as_ref()
            .map(|name| format!("\"model\": \"{name}\", "))
            .unwrap_or_default();
        let (path, body) = if self.chats {
            (
                "/v1/chat/completions",
                r#""messages": [{"role": "user", "content": "What is a Kubernetes Pod?"}]"#,
            )
        } else {
            (
                "/v1/completions",
                r#""prompt": "A Kubernetes Pod is", "max_tokens": 64"#,
            )
        };
        format!(
            "  curl http://{}{path} -H 'content-type: application/json'{key} \\\n    -d '{{{model}{body}}}'",
            reachable(self.address)
        )
    }
}

/// "All addresses" is no address to send to.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banner() -> Banner {
        Banner {
            title: "serves m".into(),
            lines: vec![("model", "llama".into())],
            address: SocketAddr::from(([0, 0, 0, 0], 80)),
            ask_for: None,
            needs_key: true,
            chats: true,
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
            ask_for: Some("m".into()),
            ..banner()
        };
        let text = plain.to_string();
        assert!(
            text.contains("/v1/completions") && !text.contains("Bearer"),
            "{text}"
        );
        assert!(text.contains(r#"{"model": "m", "prompt""#), "{text}");
    }
}
