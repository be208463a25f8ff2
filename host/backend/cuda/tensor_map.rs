//! Tensor maps as the driver encodes them, kept for tensors that come again.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock};

use ffpa_kernels_gpu::abi;

use super::driver::{Pointer, call, check};
use crate::error::Error;
use crate::tensor_map::Tensor;

/// `cuTensorMapEncodeTiled`, which drivers have since CUDA 12.0: older ones must not keep a program from starting.
type Encode = unsafe extern "C" fn(
    map: *mut Aligned,
    data_type: c_uint,
    rank: u32,
    address: *mut c_void,
    sizes: *const u64,
    byte_strides: *const u64,
    box_sizes: *const u32,
    element_strides: *const u32,
    interleave: c_uint,
    swizzle: c_uint,
    l2_promotion: c_uint,
    fill: c_uint,
) -> c_int;

/// The driver's version that the function is looked up for: CUDA 12.0.
const VERSION: c_int = 12000;
/// `CU_TENSOR_MAP_DATA_TYPE_UINT16`: elements are only moved.
const UINT16: c_uint = 1;
/// `CU_TENSOR_MAP_SWIZZLE_128B`.
const SWIZZLE_128B: c_uint = 3;
/// `CU_TENSOR_MAP_L2_PROMOTION_L2_256B`.
const L2_256B: c_uint = 3;

/// Where the driver writes a map.
#[repr(C, align(64))]
struct Aligned(abi::TensorMap);

/// Maps kept at most. One is 128 bytes; an engine has a few for each of its layers.
const MOST: usize = 1 << 14;

/// The tensor maps of a device.
#[derive(Default)]
pub struct TensorMaps {
    encode: OnceLock<Encode>,
    known: Mutex<HashMap<Tensor, abi::TensorMap>>,
}

impl TensorMaps {
    /// The map of a tensor.
    pub fn of(&self, tensor: &Tensor) -> Result<abi::TensorMap, Error> {
        let mut known = self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(map) = known.get(tensor) {
            return Ok(*map);
        }
        let map = encode(self.function()?, tensor)?;
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(*tensor, map);
        Ok(map)
    }

    fn function(&self) -> Result<Encode, Error> {
        if let Some(encode) = self.encode.get() {
            return Ok(*encode);
        }
        let mut function: Pointer = null_mut();
        let name = c"cuTensorMapEncodeTiled".as_ptr();
        // SAFETY: the name is a C string, and the driver writes one pointer.
        unsafe { call!(cuGetProcAddress(name, &mut function, VERSION, 0))? };
        if function.is_null() {
            // What the driver says of functions that it does not have: CUDA_ERROR_NOT_FOUND.
            check("cuTensorMapEncodeTiled", 500)?;
        }
        // SAFETY: the driver's function of this name has this type.
        Ok(*self.encode.get_or_init(|| unsafe { transmute::<Pointer, Encode>(function) }))
    }
}

fn encode(encode: Encode, tensor: &Tensor) -> Result<abi::TensorMap, Error> {
    let mut map = Aligned([0; 16]);
    let (sizes, strides, boxes) =
        (tensor.sizes, tensor.byte_strides, [tensor.box_sizes[0], tensor.box_sizes[1], 1, 1]);
    let base = tensor.base as *mut c_void;
    // SAFETY: the arrays have as many elements as the map has dimensions, strides one less; the driver reads no tensor.
    let code = unsafe {
        let (sizes, strides, boxes, steps) =
            (sizes.as_ptr(), strides.as_ptr(), boxes.as_ptr(), [1; 4].as_ptr());
        encode(&mut map, UINT16, 4, base, sizes, strides, boxes, steps, 0, SWIZZLE_128B, L2_256B, 0)
    };
    check("cuTensorMapEncodeTiled", code)?;
    Ok(map.0)
}
