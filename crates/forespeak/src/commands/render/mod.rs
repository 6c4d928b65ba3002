//! `forespeak render`: what others need to be started with, so that a gateway can make the most of them.

mod vllm;

use std::io::Write;

use crate::cli::RenderTarget;
use crate::size::NotASize;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RenderError {
    #[error(
        "--kv-store {0:?} is no place that vLLM knows; write memory:20GiB, dir:PATH, lmcache://host:5555 or \
         mooncake:CONFIG.json"
    )]
    NoPlace(String),
    #[error("--kv-store {place:?}: {source}")]
    Size { place: String, source: NotASize },
    #[error(
        "--kv-store {0}: vLLM has one connector at a time; name memory with a folder, or LMCache, or Mooncake"
    )]
    TwoConnectors(String),
    #[error("--kv-store dir:… needs memory:… beside it: vLLM fills the folder from host memory")]
    FolderAlone,
}

pub(crate) fn render(target: &RenderTarget) -> Result<(), RenderError> {
    let RenderTarget::Vllm(options) = target;
    let command = vllm::command(options)?;
    let text = if options.json {
        command.as_json()
    } else {
        command.as_shell()
    };
    // Without anyone to read it there is nobody to tell.
    let _ = write!(std::io::stdout(), "{text}");
    Ok(())
}
