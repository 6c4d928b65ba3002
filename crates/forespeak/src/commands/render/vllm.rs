//! The command line of a vLLM server whose caches a gateway can see, and that loads blocks from beyond its GPU.
//!
//! Names of flags and settings are those of vLLM 0.32. Three of its defaults are changed: events are on, blocks that
//! cannot be loaded are computed (vLLM would fail the request), and events of offloaded blocks tell their tokens.

use serde_json::{Value, json};

use super::RenderError;
use crate::cli::RenderVllmOptions;
use crate::size::ByteSize;

/// A hash that is the same on every host and in every version of Python, so that blocks in a shared place have the
/// same names for all.
const HASH: &str = "sha256_cbor";

/// A command line and what must be in its environment.
#[derive(Debug, PartialEq)]
pub(super) struct CommandLine {
    environment: Vec<(&'static str, String)>,
    /// The program, then flags with their values.
    words: Vec<Vec<String>>,
}

pub(super) fn command(options: &RenderVllmOptions) -> Result<CommandLine, RenderError> {
    let mut words = vec![
        vec!["vllm".to_owned(), "serve".to_owned(), options.model.clone()],
        flag("--enable-prefix-caching", None),
        flag("--prefix-caching-hash-algo", Some(HASH.to_owned())),
        flag("--enable-prompt-tokens-details", None),
    ];
    let tells = !options.no_kv_events;
    if tells {
        words.push(flag(
            "--kv-events-config",
            Some(events(options).to_string()),
        ));
    }
    let places = Places::read(&options.kv_store)?;
    let mut environment = Vec::new();
    if let Some(config) = places.transfer(tells, &mut environment) {
        words.push(flag("--kv-transfer-config", Some(config.to_string())));
    }
    Ok(CommandLine { environment, words })
}

fn flag(name: &str, value: Option<String>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(value).collect()
}

fn events(options: &RenderVllmOptions) -> Value {
    json!({
        "enable_kv_cache_events": true,
        "publisher": "zmq",
        "endpoint": options.kv_events_endpoint,
        "replay_endpoint": options.kv_events_replay_endpoint,
    })
}

/// Where its blocks go.
#[derive(Debug, Default)]
struct Places {
    memory: Option<u64>,
    folder: Option<String>,
    /// Host and port.
    lmcache: Option<(String, u16)>,
    /// The path of its configuration.
    mooncake: Option<String>,
}

impl Places {
    fn read(named: &[String]) -> Result<Self, RenderError> {
        let mut places = Self::default();
        for text in named {
            let nowhere = || RenderError::NoPlace(text.clone());
            let (scheme, rest) = text.split_once(':').ok_or_else(nowhere)?;
            match scheme {
                "memory" => {
                    let size = rest
                        .parse::<ByteSize>()
                        .map_err(|source| RenderError::Size {
                            place: text.clone(),
                            source,
                        })?;
                    places.memory = Some(size.0);
                }
                "dir" if !rest.is_empty() => places.folder = Some(rest.to_owned()),
                "lmcache" => {
                    let address = rest.strip_prefix("//").ok_or_else(nowhere)?;
                    let (host, port) = address.rsplit_once(':').ok_or_else(nowhere)?;
                    let port = port.parse().map_err(|_| nowhere())?;
                    places.lmcache = Some((host.to_owned(), port));
                }
                "mooncake" if !rest.is_empty() => places.mooncake = Some(rest.to_owned()),
                _ => return Err(nowhere()),
            }
        }
        if places.folder.is_some() && places.memory.is_none() {
            return Err(RenderError::FolderAlone);
        }
        let connectors = [
            places.memory.is_some(),
            places.lmcache.is_some(),
            places.mooncake.is_some(),
        ];
        if connectors.iter().filter(|named| **named).count() > 1 {
            return Err(RenderError::TwoConnectors(named.join(" ")));
        }
        Ok(places)
    }

    fn transfer(
        &self,
        tells: bool,
        environment: &mut Vec<(&'static str, String)>,
    ) -> Option<Value> {
        if let Some(bytes) = self.memory {
            let mut extra = json!({
                "cpu_bytes_to_use": bytes,
                "self_describing_kv_events": tells,
            });
            if let Some(folder) = &self.folder {
                extra["spec_name"] = json!("TieringOffloadingSpec");
                extra["secondary_tiers"] = json!([{
                    "type": "fs",
                    "root_dir": folder,
                    "enable_kv_events": tells,
                    "locality": "REMOTE",
                }]);
            }
            return Some(connector("OffloadingConnector", extra));
        }
        if let Some((host, port)) = &self.lmcache {
            let extra = json!({
                "lmcache.mp.host": format!("tcp://{host}"),
                "lmcache.mp.port": port,
            });
            return Some(connector("LMCacheMPConnector", extra));
        }
        let config = self.mooncake.as_ref()?;
        environment.push(("MOONCAKE_CONFIG_PATH", config.clone()));
        Some(connector(
            "MooncakeStoreConnector",
            json!({"load_async": true}),
        ))
    }
}

fn connector(name: &str, extra: Value) -> Value {
    json!({
        "kv_connector": name,
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": extra,
    })
}

impl CommandLine {
    /// For a shell: one flag a line.
    pub(super) fn as_shell(&self) -> String {
        let environment = self.environment.iter();
        let settings = environment.map(|(name, value)| format!("{name}={} ", quoted(value)));
        let lines = self.words.iter().map(|words| {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            words.join(" ")
        });
        let lines: Vec<String> = lines.collect();
        format!(
            "{}{}\n",
            settings.collect::<String>(),
            lines.join(" \\\n  ")
        )
    }

    /// For manifests and programs: the words, and the environment.
    pub(super) fn as_json(&self) -> String {
        let command: Vec<&String> = self.words.iter().flatten().collect();
        let environment: serde_json::Map<String, Value> = self
            .environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        format!("{:#}\n", json!({"command": command, "env": environment}))
    }
}

/// As a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, RenderTarget};

    fn rendered(arguments: &[&str]) -> Result<CommandLine, RenderError> {
        let words = ["forespeak", "render", "vllm"].iter().chain(arguments);
        let Command::Render {
            target: RenderTarget::Vllm(options),
        } = Cli::try_parse_from(words).unwrap().command
        else {
            unreachable!("that was `render vllm`");
        };
        command(&options)
    }

    #[test]
    fn without_a_place_it_tells_what_the_gpu_holds() {
        let golden = r#"vllm serve MODEL \
  --enable-prefix-caching \
  --prefix-caching-hash-algo sha256_cbor \
  --enable-prompt-tokens-details \
  --kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558"}'
"#;
        assert_eq!(rendered(&[]).unwrap().as_shell(), golden);
    }

    #[test]
    fn host_memory_and_a_folder_are_vllm_s_own_offloading() {
        let golden = r#"vllm serve org/m \
  --enable-prefix-caching \
  --prefix-caching-hash-algo sha256_cbor \
  --enable-prompt-tokens-details \
  --kv-transfer-config '{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_load_failure_policy":"recompute","kv_connector_extra_config":{"cpu_bytes_to_use":21474836480,"self_describing_kv_events":false,"spec_name":"TieringOffloadingSpec","secondary_tiers":[{"type":"fs","root_dir":"/mnt/kv","enable_kv_events":false,"locality":"REMOTE"}]}}'
"#;
        let arguments = [
            "--model",
            "org/m",
            "--no-kv-events",
            "--kv-store",
            "dir:/mnt/kv",
            "--kv-store",
            "memory:20GiB",
        ];
        assert_eq!(rendered(&arguments).unwrap().as_shell(), golden);
    }

    #[test]
    fn connectors_from_elsewhere_are_named_with_where_they_are() {
        let lmcache = rendered(&["--no-kv-events", "--kv-store", "lmcache://10.0.0.9:5555"]);
        let golden = r#"  --kv-transfer-config '{"kv_connector":"LMCacheMPConnector","kv_role":"kv_both","kv_load_failure_policy":"recompute","kv_connector_extra_config":{"lmcache.mp.host":"tcp://10.0.0.9","lmcache.mp.port":5555}}'
"#;
        assert!(lmcache.unwrap().as_shell().ends_with(golden));
        let mooncake = rendered(&["--no-kv-events", "--kv-store", "mooncake:/etc/m c.json"]);
        let mooncake = mooncake.unwrap();
        let golden = "MOONCAKE_CONFIG_PATH='/etc/m c.json' vllm serve MODEL \\\n";
        assert!(mooncake.as_shell().starts_with(golden));
        assert!(
            mooncake
                .as_shell()
                .contains(r#""kv_connector":"MooncakeStoreConnector""#)
        );
        let json: Value = serde_json::from_str(&mooncake.as_json()).unwrap();
        assert_eq!(json["env"]["MOONCAKE_CONFIG_PATH"], "/etc/m c.json");
        assert_eq!(json["command"][1], "serve");
    }

    #[test]
    fn what_vllm_cannot_do_is_said_here() {
        for arguments in [
            &["--kv-store", "redis://h:1"][..],
            &["--kv-store", "memory:much"],
            &["--kv-store", "dir:/mnt/kv"],
            &["--kv-store", "memory:1GiB", "--kv-store", "lmcache://h:1"],
        ] {
            assert!(rendered(arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn a_shell_reads_back_what_was_meant() {
        assert_eq!(quoted("a-b_c/d.e:f"), "a-b_c/d.e:f");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
