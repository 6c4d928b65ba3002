//! Readers of files survive whatever the file says: an error, never a crash or a huge allocation.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails loudly, and shows what it measured"
)]

use forespeak_model::gguf::Gguf;
use forespeak_model::{ModelError, Tokenizer, safetensors};
use proptest::prelude::*;
use testkit::tiny_models::{GgufWriter, MetadataValue, TensorType, TinyModel};

fn small_gguf() -> Vec<u8> {
    let mut writer = GgufWriter::default();
    writer.set(
        "general.architecture",
        MetadataValue::String("llama".into()),
    );
    writer.set("general.alignment", MetadataValue::U32(32));
    writer.set(
        "tokenizer.ggml.model",
        MetadataValue::String("llama".into()),
    );
    let tokens = ["<unk>", "<s>", "a", "b", "ab"].map(str::to_owned).to_vec();
    writer.set("tokenizer.ggml.tokens", MetadataValue::Strings(tokens));
    writer.set(
        "tokenizer.ggml.scores",
        MetadataValue::F32s(vec![0.0, 0.0, -1.0, -2.0, -3.0]),
    );
    writer.set(
        "tokenizer.ggml.token_type",
        MetadataValue::I32s(vec![2, 3, 1, 1, 1]),
    );
    writer.tensor("one", &[4, 8], TensorType::F32, vec![1; 128]);
    writer.tensor("two", &[2, 32], TensorType::Q8_0, vec![2; 68]);
    writer.finish()
}

fn small_safetensors() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let tiny = TinyModel {
        dim: 8,
        layers: 1,
        heads: 2,
        kv_heads: 1,
        feed_forward: 8,
        ..TinyModel::default()
    };
    tiny.write_folder(folder.path()).unwrap();
    std::fs::read(folder.path().join("model.safetensors")).unwrap()
}

/// Reads as far as it goes: header, directory, every array, the tokenizer.
fn read_gguf(bytes: &[u8]) -> Result<(), ModelError> {
    let gguf = Gguf::parse("foreign.gguf", bytes)?;
    for (_, place) in gguf.tensors() {
        assert_eq!(gguf.data(place).len(), place.range.len());
        assert!(place.range.end <= bytes.len());
    }
    Tokenizer::from_gguf(&gguf).map(|_| ())
}

fn read_safetensors(bytes: &[u8]) -> Result<(), ModelError> {
    for (_, place) in safetensors::parse("foreign.safetensors", bytes)? {
        assert!(place.range.start <= place.range.end && place.range.end <= bytes.len());
    }
    Ok(())
}

#[derive(Debug, Clone)]
enum Damage {
    Set(prop::sample::Index, u8),
    Number(prop::sample::Index, u64),
    Cut(prop::sample::Index),
    Repeat(prop::sample::Index, u8),
}

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let huge = prop_oneof![
        any::<u64>(),
        Just(u64::MAX),
        Just(u64::MAX / 32 + 1),
        (0u32..64).prop_map(|bit| 1 << bit),
    ];
    let one = prop_oneof![
        4 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        4 => (any::<prop::sample::Index>(), huge).prop_map(|(at, number)| Damage::Number(at, number)),
        1 => any::<prop::sample::Index>().prop_map(Damage::Cut),
        1 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, len)| Damage::Repeat(at, len)),
    ];
    prop::collection::vec(one, 1..6)
}

fn apply(bytes: &mut Vec<u8>, damages: &[Damage]) {
    for damage in damages {
        if bytes.is_empty() {
            return;
        }
        match damage {
            Damage::Set(at, byte) => *at.get_mut(bytes) = *byte,
            Damage::Number(at, number) => {
                let at = at.index(bytes.len());
                let end = bytes.len().min(at + 8);
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Damage::Repeat(at, len) => {
                let at = at.index(bytes.len());
                let end = bytes.len().min(at + usize::from(*len));
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
}

#[test]
fn the_undamaged_files_are_sound() {
    read_gguf(&small_gguf()).unwrap();
    read_safetensors(&small_safetensors()).unwrap();
}

#[test]
fn every_truncation_is_an_error() {
    let gguf = small_gguf();
    let tensors_end = gguf.len() - 32;
    for len in 0..tensors_end {
        assert!(read_gguf(&gguf[..len]).is_err(), "{len}");
    }
    let safetensors = small_safetensors();
    for len in (0..safetensors.len()).step_by(7) {
        assert!(read_safetensors(&safetensors[..len]).is_err(), "{len}");
    }
}

#[test]
fn lying_counts_are_refused_before_anything_is_allocated() {
    for count in [u64::MAX, u64::MAX / 8, 1 << 40, 1 << 32] {
        for at in [8, 16] {
            let mut bytes = small_gguf();
            bytes[at..at + 8].copy_from_slice(&count.to_le_bytes());
            let error = read_gguf(&bytes).unwrap_err().to_string();
            assert!(error.contains("more than its"), "{error}");
        }
    }
}

#[test]
fn overlapping_tensors_are_named() {
    let mut bytes = small_gguf();
    let name = bytes
        .windows(3)
        .rposition(|window| window == b"two")
        .unwrap();
    // After the name: dimensions (4), two sizes (16), type (4), then the offset.
    let offset = name + 3 + 4 + 16 + 4;
    bytes[offset..offset + 8].copy_from_slice(&64u64.to_le_bytes());
    let error = read_gguf(&bytes).unwrap_err().to_string();
    assert_eq!(error, "foreign.gguf: tensor `two` overlaps tensor `one`");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_gguf_never_panics(damages in damage()) {
        let mut bytes = small_gguf();
        apply(&mut bytes, &damages);
        let _ = read_gguf(&bytes);
    }

    #[test]
    fn damaged_safetensors_never_panics(damages in damage()) {
        let mut bytes = small_safetensors();
        apply(&mut bytes, &damages);
        let _ = read_safetensors(&bytes);
    }

    #[test]
    fn noise_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_gguf(&bytes);
        let _ = read_safetensors(&bytes);
        bytes.splice(0..0, *b"GGUF\x03\0\0\0");
        let _ = read_gguf(&bytes);
    }
}
