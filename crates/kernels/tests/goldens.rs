//! Encodings agree with gguf-py to the bit; `goldens/make.py` makes the files.

#![allow(clippy::unwrap_used, reason = "a missing golden is a failed test")]

use forespeak_kernels::{
    Compute, Format, Input, Matrix, Product, Scratch, Tier, dequantize, matmul,
};

fn golden(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/goldens")
        .join(name);
    std::fs::read(path).unwrap()
}

fn floats(name: &str) -> Vec<f32> {
    golden(name)
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn decoded_blocks_have_the_bits_of_gguf_py() {
    for format in [
        Format::F16,
        Format::Bf16,
        Format::Q8_0,
        Format::Q4_0,
        Format::Q4K,
        Format::Q6K,
    ] {
        let expected = floats(&format!("{format}.values"));
        let mut decoded = vec![0.0; expected.len()];
        dequantize(format, &golden(&format!("{format}.blocks")), &mut decoded);
        assert_eq!(bits(&decoded), bits(&expected), "{format}");
    }
}

#[test]
fn quantising_to_q8_0_gives_the_weights_of_gguf_py() {
    let (values, encoded) = (floats("q8_0.input"), golden("q8_0.encoded"));
    let compute = Compute::new(Tier::Scalar, 1);
    let cols = values.len();
    let ours = Matrix::quantize(&compute, Format::Q8_0, 1, cols, |_, out| {
        out.copy_from_slice(&values)
    })
    .unwrap();
    let theirs = Matrix::pack(&compute, Format::Q8_0, 1, cols, |_| &encoded).unwrap();
    // One input at a time shows every weight on its own.
    for col in 0..cols {
        let mut x = vec![0.0; cols];
        x[col] = 1.0;
        let weight = |matrix: &Matrix| {
            let mut out = [0.0];
            matmul(
                &compute,
                &mut Scratch::default(),
                Input::Rows(&x),
                1,
                &mut [Product::new(matrix, &mut out)],
            );
            out[0].to_bits()
        };
        assert_eq!(weight(&ours), weight(&theirs), "weight {col}");
    }
}
