//! Says whether the bundled model is there to be put into the binary, so that a checkout without it
//! still builds.

use std::path::Path;

const BUNDLED_MODEL: &str = "../../models/forespeak-target.gguf";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_bundled_model)");
    println!("cargo::rerun-if-changed={BUNDLED_MODEL}");
    let wanted = std::env::var_os("CARGO_FEATURE_BUNDLED").is_some();
    if wanted && Path::new(BUNDLED_MODEL).is_file() {
        println!("cargo::rustc-cfg=has_bundled_model");
    }
}
