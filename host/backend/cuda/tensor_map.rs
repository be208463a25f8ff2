//! Tensor maps as the driver encodes them, kept for tensors that come again.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock};

use ffpa_kernels_gpu::abi::{self, Params};

use super::driver::{Pointer, call, check};
use crate::error::Error;
use crate::plan::Plan;
use crate::tensor_map::{Tensor, tensor_maps};

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

/// The tensor maps that a device's calls have needed. Only those of tensors that it does not know take the driver and memory.
#[derive(Default)]
pub struct MapCache {
    encode: OnceLock<Encode>,
    known: Mutex<HashMap<Tensor, abi::TensorMap>>,
}

impl MapCache {
    /// The maps of a plan's tensors, whose addresses `params` has: under one lock, and under none if the kernel needs no maps.
    pub fn of(&self, plan: &Plan, params: &Params) -> Result<abi::TensorMaps, Error> {
        let mut known = None;
        tensor_maps(plan.kernel, &plan.problem, params, |tensor| {
            let lock = || self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let known = known.get_or_insert_with(lock);
            if let Some(map) = known.get(tensor) {
                return Ok(*map);
            }
            let map = encode(self.function()?, tensor)?;
            if known.len() >= MOST {
                known.clear();
            }
            known.insert(*tensor, map);
            Ok(map)
        })
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ffpa_kernels_gpu::catalog::Copies;
    use ffpa_kernels_gpu::config::{Arch, Dtype};

    use super::*;
    use crate::build_info::BuildInfo;
    use crate::device::DeviceInfo;
    use crate::plan::plan;
    use crate::problem::Problem;

    static ENCODED: AtomicUsize = AtomicUsize::new(0);

    /// In the driver's place: writes the address to the map, and counts.
    unsafe extern "C" fn count(
        map: *mut Aligned,
        _: c_uint,
        _: u32,
        address: *mut c_void,
        _: *const u64,
        _: *const u64,
        _: *const u32,
        _: *const u32,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
    ) -> c_int {
        ENCODED.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's map is live.
        unsafe { (*map).0 = [address as u64; 16] };
        0
    }

    #[test]
    fn maps_are_encoded_when_their_tensors_first_come() {
        let cache = MapCache::default();
        cache.encode.get_or_init(|| count);
        let problem = Problem::contiguous(Dtype::F16, [2, 4, 2, 200, 300, 64]);
        let planned =
            |arch| plan(&problem, &DeviceInfo::of_arch(arch), BuildInfo::here()).expect("there is a kernel");
        let bulk = planned(Arch::Sm90a);
        assert_eq!(bulk.kernel.copies, Copies::Bulk);
        let maps = |[q, k, v]: [u64; 3]| {
            let mut params = bulk.params;
            (params.q.base, params.k.base, params.v.base) = (q, k, v);
            let maps = cache.of(&bulk, &params).expect("they are encoded");
            assert_eq!([maps.q, maps.k, maps.v], [[q; 16], [k; 16], [v; 16]]);
            ENCODED.swap(0, Ordering::SeqCst)
        };
        assert_eq!(maps([16, 32, 48]), 3);
        assert_eq!(maps([16, 32, 48]), 0);
        assert_eq!(maps([16, 64, 48]), 1);
        // Keys may be values too.
        assert_eq!(maps([16, 80, 80]), 1);
        // A kernel without bulk copies takes no lock.
        let _held = cache.known.lock();
        let plain = planned(Arch::Sm89);
        assert_eq!(cache.of(&plain, &plain.params), Ok(abi::TensorMaps::NONE));
        assert_eq!(ENCODED.load(Ordering::SeqCst), 0);
    }
}
