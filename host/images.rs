//! The PTX modules that this build embeds, one per kernel, compressed.

use crate::error::Error;

include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// The PTX of a kernel.
pub fn ptx(kernel: &'static str) -> Result<String, Error> {
    let damaged = || Error::DamagedImage { kernel };
    let (_, image) = IMAGES.iter().find(|(name, _)| *name == kernel).ok_or_else(damaged)?;
    let bytes = miniz_oxide::inflate::decompress_to_vec_zlib(image).map_err(|_| damaged())?;
    String::from_utf8(bytes).map_err(|_| damaged())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_kernel_has_an_image_of_its_own() {
        for kernel in crate::BuildInfo::current().kernels {
            let ptx = super::ptx(kernel.name).expect("an image");
            assert!(ptx.contains(&format!(".entry {}(", kernel.name)), "{}", kernel.name);
            assert!(ptx.contains(&format!(".target {}", kernel.arch.target())), "{}", kernel.name);
        }
    }
}
