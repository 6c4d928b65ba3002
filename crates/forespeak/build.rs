//! Says whether the bundled pair is there to be put into the binary, so that a checkout without it
//! still builds.

use std::path::Path;

const BUNDLED_PAIR: [&str; 2] = [
    "../../models/forespeak-target.gguf",
    "../../models/forespeak-draft.gguf",
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_bundled_model)");
    for file in BUNDLED_PAIR {
        println!("cargo::rerun-if-changed={file}");
    }
    let wanted = std::env::var_os("CARGO_FEATURE_BUNDLED").is_some();
    if wanted && BUNDLED_PAIR.iter().all(|file| Path::new(file).is_file()) {
        println!("cargo::rustc-cfg=has_bundled_model");
    }
}
