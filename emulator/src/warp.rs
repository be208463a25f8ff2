//! [`Warp`] on the CPU.

use std::panic::Location;

use cuda_std::Warp;
use cuda_std::fragment::{m16n8k16, m16n8k32, m16n8k64};
use half::{bf16, f16};

use crate::bulk::BulkCopy;
use crate::copies::Copy as CopyInFlight;
use crate::cta::{Cta, Pause, Scheduler};
use crate::fault::{Access, Fault, Place};
use crate::lanes::Lanes;
use crate::matrix::Accumulators;
use crate::registers::Change;
use crate::tensor_map::TensorMap;
use crate::{arithmetic, matrix};

/// The running warp of an emulated CTA.
#[derive(Clone, Copy)]
pub struct Emu<'a> {
    cta: &'a Cta<'a>,
    warp: usize,
    scheduler: &'a Scheduler,
}

impl<'a> Emu<'a> {
    pub(crate) fn new(cta: &'a Cta<'a>, warp: usize, scheduler: &'a Scheduler) -> Self {
        Emu { cta, warp, scheduler }
    }

    fn place(self, lane: usize, access: Access, location: &'static Location<'static>) -> Place {
        Place { warp: self.warp, lane, access, location }
    }

    /// Lets another warp run, now and then.
    fn give_way(self) {
        if self.cta.random.borrow_mut().below(4) == 0 {
            self.scheduler.suspend(Pause::Turn);
        }
    }

    fn read_shared<const N: usize>(
        self,
        addresses: Lanes<u32>,
        access: Access,
        location: &'static Location<'static>,
    ) -> [[u8; N]; 32] {
        let (mut shared, clocks) = (self.cta.shared.borrow_mut(), self.cta.clocks.borrow());
        self.cta.count(|c| c.bank_conflicts += bank_conflicts::<N>(&addresses.0));
        let mut read = |lane| shared.read(addresses.0[lane], self.place(lane, access, location), &clocks);
        let mut bytes = [[0; N]; 32];
        let result = (0..32).try_for_each(|lane| {
            bytes[lane] = read(lane)?;
            Ok(())
        });
        drop((shared, clocks));
        result.unwrap_or_else(|fault: Fault| fault.raise());
        bytes
    }

    fn store_word(
        self,
        address: Lanes<u32>,
        value: Lanes<u32>,
        mask: Lanes<bool>,
        location: &'static Location<'static>,
    ) {
        let lanes = || (0..32).filter(|&lane| mask.0[lane]);
        // Lanes that do not take part conflict with none: let them repeat the first that does.
        let first = lanes().next().unwrap_or(0);
        let addresses = std::array::from_fn(|lane| address.0[if mask.0[lane] { lane } else { first }]);
        self.cta.count(|c| {
            c.shared_stores += 1;
            c.bank_conflicts += bank_conflicts::<4>(&addresses);
        });
        let result = {
            let (mut shared, clocks) = (self.cta.shared.borrow_mut(), self.cta.clocks.borrow());
            lanes().try_for_each(|lane| {
                let place = self.place(lane, Access::Store, location);
                shared.write(address.0[lane], value.0[lane].to_le_bytes(), place, &clocks)
            })
        };
        result.unwrap_or_else(|fault| fault.raise());
    }

    fn load_matrix(
        self,
        address: Lanes<u32>,
        transposed: bool,
        at: &'static Location<'static>,
    ) -> [Lanes<u32>; 4] {
        self.cta.count(|c| c.matrix_loads += 1);
        matrix::distribute(&self.read_shared(address, Access::MatrixLoad, at), transposed)
    }

    fn load_global_bytes<const N: usize>(
        self,
        address: Lanes<u64>,
        mask: Lanes<bool>,
        location: &'static Location<'static>,
    ) -> [[u8; N]; 32] {
        let mut bytes = [[0; N]; 32];
        for lane in (0..32).filter(|&lane| mask.0[lane]) {
            let place = self.place(lane, Access::Load, location);
            bytes[lane] = self.cta.global.read(address.0[lane], place).unwrap_or_else(|fault| fault.raise());
            self.cta.count(|c| c.global_bytes_read += N as u64);
        }
        bytes
    }

    fn store_global<const N: usize>(
        self,
        address: Lanes<u64>,
        mask: Lanes<bool>,
        location: &'static Location<'static>,
        bytes: impl Fn(usize) -> [u8; N],
    ) {
        for lane in (0..32).filter(|&lane| mask.0[lane]) {
            let place = self.place(lane, Access::Store, location);
            self.cta.global.write(address.0[lane], bytes(lane), place).unwrap_or_else(|fault| fault.raise());
            self.cta.count(|c| c.global_bytes_written += N as u64);
        }
    }

    fn start_copy(self, to: u32, from: u64, bytes: u32, place: Place) -> Result<(), Fault> {
        let source = match bytes {
            0 => [0; 16],
            16 => self.cta.global.read(from, place)?,
            _ => return Err(Fault::CopySize { bytes, access: place }),
        };
        self.cta.count(|c| c.global_bytes_read += u64::from(bytes));
        let (mut shared, clocks) = (self.cta.shared.borrow_mut(), self.cta.clocks.borrow());
        shared.begin_copy(to, 16, place, &clocks)?;
        // Some copies land at once, the others when they are awaited: no kernel may depend on either.
        if self.cta.random.borrow_mut().below(2) == 0 {
            shared.land(to, source, place, &clocks, false);
        }
        self.cta.copies[self.warp].borrow_mut().start(CopyInFlight { address: to, bytes: source, place });
        Ok(())
    }
}

/// Each lane's 16 bytes as four words.
fn words<const BYTES: usize, const N: usize>(bytes: &[[u8; BYTES]; 32]) -> [Lanes<u32>; N] {
    const { assert!(BYTES == 4 * N) };
    std::array::from_fn(|word| {
        Lanes::from_fn(|lane| {
            u32::from_le_bytes(bytes[lane][4 * word..4 * word + 4].try_into().expect("4 bytes"))
        })
    })
}

/// A lane's words as bytes.
fn bytes<const N: usize>(words: &[Lanes<u32>], lane: usize) -> [u8; N] {
    let mut bytes = [0; N];
    for (bytes, word) in bytes.chunks_mut(4).zip(words) {
        bytes.copy_from_slice(&word.0[lane].to_le_bytes());
    }
    bytes
}

/// Wavefronts beyond the least possible, as [`cuda_std::swizzle::bank_conflicts`], for the common sizes.
fn bank_conflicts<const N: usize>(addresses: &[u32; 32]) -> u64 {
    let lanes_per_phase = 128 / N;
    let phases = addresses.chunks(lanes_per_phase).map(|phase| {
        // Accesses are aligned to their size, so they conflict exactly if they share a slot of N bytes among 128.
        let mut counts = [0_u64; 32];
        for (i, address) in phase.iter().enumerate() {
            if !phase[..i].contains(address) {
                counts[*address as usize / N % lanes_per_phase] += 1;
            }
        }
        counts.iter().max().map_or(0, |worst| worst.saturating_sub(1))
    });
    phases.sum()
}

impl Warp for Emu<'_> {
    type U32 = Lanes<u32>;
    type U64 = Lanes<u64>;
    type F32 = Lanes<f32>;
    type Bool = Lanes<bool>;

    fn block_idx_x(self) -> u32 {
        self.cta.block
    }
    fn warp_id(self) -> u32 {
        self.warp as u32
    }
    fn lane_id(self) -> Lanes<u32> {
        Lanes::from_fn(|lane| lane as u32)
    }

    fn splat(self, value: u32) -> Lanes<u32> {
        Lanes::splat(value)
    }
    fn splat_f32(self, value: f32) -> Lanes<f32> {
        Lanes::splat(value)
    }
    fn mul_wide(self, a: Lanes<u32>, b: u32) -> Lanes<u64> {
        a.map(|a| u64::from(a) * u64::from(b))
    }
    fn less(self, a: Lanes<u32>, b: Lanes<u32>) -> Lanes<bool> {
        a.zip(b, |a, b| a < b)
    }
    fn less_f32(self, a: Lanes<f32>, b: Lanes<f32>) -> Lanes<bool> {
        a.zip(b, |a, b| a < b)
    }
    fn select(self, mask: Lanes<bool>, a: Lanes<u32>, b: Lanes<u32>) -> Lanes<u32> {
        Lanes::from_fn(|i| if mask.0[i] { a.0[i] } else { b.0[i] })
    }
    fn select_f32(self, mask: Lanes<bool>, a: Lanes<f32>, b: Lanes<f32>) -> Lanes<f32> {
        Lanes::from_fn(|i| if mask.0[i] { a.0[i] } else { b.0[i] })
    }
    fn max(self, a: Lanes<f32>, b: Lanes<f32>) -> Lanes<f32> {
        a.zip(b, arithmetic::max)
    }
    fn maximum(self, a: Lanes<f32>, b: Lanes<f32>) -> Lanes<f32> {
        a.zip(b, arithmetic::maximum)
    }
    fn fma(self, a: Lanes<f32>, b: Lanes<f32>, c: Lanes<f32>) -> Lanes<f32> {
        Lanes::from_fn(|i| a.0[i].mul_add(b.0[i], c.0[i]))
    }
    fn exp2(self, x: Lanes<f32>) -> Lanes<f32> {
        x.map(arithmetic::exp2)
    }
    fn log2(self, x: Lanes<f32>) -> Lanes<f32> {
        x.map(arithmetic::log2)
    }
    fn reciprocal(self, x: Lanes<f32>) -> Lanes<f32> {
        x.map(arithmetic::reciprocal)
    }
    fn divide(self, a: Lanes<f32>, b: Lanes<f32>) -> Lanes<f32> {
        a.zip(b, |a, b| a / b)
    }
    fn abs(self, x: Lanes<f32>) -> Lanes<f32> {
        x.map(f32::abs)
    }
    fn pack_f16(self, low: Lanes<f32>, high: Lanes<f32>) -> Lanes<u32> {
        low.zip(high, arithmetic::pack_f16)
    }
    fn pack_bf16(self, low: Lanes<f32>, high: Lanes<f32>) -> Lanes<u32> {
        low.zip(high, arithmetic::pack_bf16)
    }
    fn pack_e4m3(self, values: [Lanes<f32>; 4]) -> Lanes<u32> {
        Lanes::from_fn(|lane| arithmetic::pack_e4m3(values.map(|x| x.0[lane])))
    }
    fn pack_s8(self, values: [Lanes<f32>; 4]) -> Lanes<u32> {
        Lanes::from_fn(|lane| arithmetic::pack_s8(values.map(|x| x.0[lane])))
    }
    fn pack_e2m1(self, values: [Lanes<f32>; 8]) -> Lanes<u32> {
        Lanes::from_fn(|lane| arithmetic::pack_e2m1(values.map(|x| x.0[lane])))
    }

    fn unpack_e4m3(self, word: Lanes<u32>) -> [Lanes<u32>; 2] {
        let pair = |i: usize| {
            word.map(|word| arithmetic::unpack_e4m3(word.to_le_bytes()[2 * i], word.to_le_bytes()[2 * i + 1]))
        };
        [pair(0), pair(1)]
    }
    fn mul_f16x2(self, a: Lanes<u32>, b: Lanes<u32>) -> Lanes<u32> {
        a.zip(b, arithmetic::mul_f16x2)
    }

    fn permute_bytes(self, a: Lanes<u32>, b: Lanes<u32>, selector: u32) -> Lanes<u32> {
        a.zip(b, |a, b| {
            let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
            u32::from_le_bytes([0, 4, 8, 12].map(|shift| bytes[(selector >> shift & 7) as usize]))
        })
    }

    fn unpack_f16(self, word: Lanes<u32>) -> Lanes<f32> {
        word.map(|bits| f16::from_bits(bits as u16).to_f32())
    }
    fn float_from_bits(self, bits: Lanes<u32>) -> Lanes<f32> {
        bits.map(f32::from_bits)
    }
    fn bits_from_float(self, x: Lanes<f32>) -> Lanes<u32> {
        x.map(f32::to_bits)
    }
    fn float_from_signed(self, bits: Lanes<u32>) -> Lanes<f32> {
        bits.map(|bits| bits.cast_signed() as f32)
    }

    fn shuffle_xor(self, value: Lanes<f32>, mask: u32) -> Lanes<f32> {
        Lanes::from_fn(|lane| value.0[lane ^ mask as usize])
    }
    fn vote_any(self, predicate: Lanes<bool>) -> bool {
        self.give_way();
        predicate.0.contains(&true)
    }
    fn sync_warp(self) {
        self.give_way();
        self.cta.clocks.borrow_mut().advance(self.warp);
    }
    fn sync_threads(self) {
        self.scheduler.suspend(Pause::Barrier(Location::caller()));
    }

    fn sync_threads_or(self, predicate: Lanes<bool>) -> bool {
        self.cta.ballot.set(self.cta.ballot.get() | predicate.0.contains(&true));
        self.scheduler.suspend(Pause::Barrier(Location::caller()));
        self.cta.verdict.get()
    }

    fn shared_base(self) -> u32 {
        0
    }
    unsafe fn load_shared_x4(self, address: Lanes<u32>) -> [Lanes<u32>; 4] {
        self.cta.count(|c| c.shared_loads += 1);
        words::<16, 4>(&self.read_shared(address, Access::Load, Location::caller()))
    }
    unsafe fn load_shared_f32(self, address: Lanes<u32>) -> Lanes<f32> {
        self.cta.count(|c| c.shared_loads += 1);
        let bytes = self.read_shared::<4>(address, Access::Load, Location::caller());
        Lanes::from_fn(|lane| f32::from_le_bytes(bytes[lane]))
    }
    unsafe fn store_shared_f32(self, address: Lanes<u32>, value: Lanes<f32>, mask: Lanes<bool>) {
        self.store_word(address, value.map(f32::to_bits), mask, Location::caller());
    }
    unsafe fn store_shared(self, address: Lanes<u32>, value: Lanes<u32>) {
        self.store_word(address, value, Lanes::splat(true), Location::caller());
    }
    unsafe fn load_matrix_x4(self, address: Lanes<u32>) -> [Lanes<u32>; 4] {
        self.load_matrix(address, false, Location::caller())
    }
    unsafe fn load_matrix_transposed_x4(self, address: Lanes<u32>) -> [Lanes<u32>; 4] {
        self.load_matrix(address, true, Location::caller())
    }

    unsafe fn load_global<const BYTES: usize>(self, address: Lanes<u64>, mask: Lanes<bool>) -> Lanes<u32> {
        const { assert!(BYTES == 1 || BYTES == 2 || BYTES == 4) };
        let bytes = self.load_global_bytes::<BYTES>(address, mask, Location::caller());
        Lanes::from_fn(|lane| bytes[lane].iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)))
    }
    unsafe fn load_global_x4(self, address: Lanes<u64>, mask: Lanes<bool>) -> [Lanes<u32>; 4] {
        words::<16, 4>(&self.load_global_bytes(address, mask, Location::caller()))
    }
    unsafe fn load_global_x2(self, address: Lanes<u64>, mask: Lanes<bool>) -> [Lanes<u32>; 2] {
        words::<8, 2>(&self.load_global_bytes(address, mask, Location::caller()))
    }
    unsafe fn store_global_x4(self, address: Lanes<u64>, value: [Lanes<u32>; 4], mask: Lanes<bool>) {
        self.store_global(address, mask, Location::caller(), |lane| bytes::<16>(&value, lane));
    }
    unsafe fn store_global_x2(self, address: Lanes<u64>, value: [Lanes<u32>; 2], mask: Lanes<bool>) {
        self.store_global(address, mask, Location::caller(), |lane| bytes::<8>(&value, lane));
    }
    unsafe fn store_global_f32(self, address: Lanes<u64>, value: Lanes<f32>, mask: Lanes<bool>) {
        self.store_global(address, mask, Location::caller(), |lane| value.0[lane].to_le_bytes());
    }
    unsafe fn store_global_f32x2(self, address: Lanes<u64>, value: [Lanes<f32>; 2], mask: Lanes<bool>) {
        let value = value.map(|float| float.map(f32::to_bits));
        self.store_global(address, mask, Location::caller(), |lane| bytes::<8>(&value, lane));
    }

    unsafe fn cp_async(self, destination: Lanes<u32>, source: Lanes<u64>, bytes: Lanes<u32>) {
        let location = Location::caller();
        self.cta.count(|c| {
            c.copies += 1;
            c.bank_conflicts += bank_conflicts::<16>(&destination.0);
        });
        for lane in 0..32 {
            let place = self.place(lane, Access::Copy, location);
            self.start_copy(destination.0[lane], source.0[lane], bytes.0[lane], place)
                .unwrap_or_else(|fault| fault.raise());
        }
    }
    fn cp_async_commit_group(self) {
        self.cta.copies[self.warp].borrow_mut().commit();
        self.give_way();
    }
    fn cp_async_wait_group<const PENDING: usize>(self) {
        let (mut shared, clocks) = (self.cta.shared.borrow_mut(), self.cta.clocks.borrow());
        for copy in self.cta.copies[self.warp].borrow_mut().wait(PENDING) {
            shared.land(copy.address, copy.bytes, copy.place, &clocks, true);
        }
    }

    unsafe fn mbarrier_init(self, barrier: u32, arrivals: u32) {
        let place = self.place(0, Access::Mbarrier, Location::caller());
        let result = {
            let clocks = self.cta.clocks.borrow();
            let (made, knowledge) = ((place, clocks.now(self.warp)), clocks.of(self.warp));
            self.cta.shared.borrow_mut().make_mbarrier(barrier, place, &clocks).and_then(|()| {
                let warps = self.cta.copies.len();
                self.cta.bulk.borrow_mut().init(barrier, arrivals, warps, made, knowledge)
            })
        };
        result.unwrap_or_else(|fault| fault.raise());
    }
    fn fence_barrier_init(self) {
        self.fence_proxy_async();
    }
    fn fence_proxy_async(self) {
        self.cta.clocks.borrow_mut().fence(self.warp);
        self.give_way();
    }
    unsafe fn mbarrier_arrive(self, barrier: u32) {
        self.sync_warp();
        self.arrive(barrier, 0, Location::caller());
    }
    unsafe fn mbarrier_arrive_expect(self, barrier: u32, bytes: u32) {
        self.arrive(barrier, bytes, Location::caller());
    }
    unsafe fn mbarrier_wait(self, barrier: u32, parity: u32) {
        let location = Location::caller();
        self.check_barrier(barrier, location);
        while !self.cta.bulk.borrow().is_complete(barrier, parity) {
            self.scheduler.suspend(Pause::Mbarrier(barrier, parity, location));
        }
        if let Some(knowledge) = self.cta.bulk.borrow_mut().acquire(barrier) {
            self.cta.clocks.borrow_mut().acquire(self.warp, knowledge);
        }
    }
    unsafe fn copy_tensor(self, destination: u32, map: u64, coordinates: [u32; 4], barrier: u32) {
        self.check_barrier(barrier, Location::caller());
        let place = self.place(0, Access::BulkCopy, Location::caller());
        self.start_bulk_copy(destination, map, coordinates, barrier, place)
            .unwrap_or_else(|fault| fault.raise());
        self.give_way();
    }

    fn increase_registers<const COUNT: u32>(self) {
        self.change_registers(true, COUNT, Location::caller());
    }
    fn decrease_registers<const COUNT: u32>(self) {
        self.change_registers(false, COUNT, Location::caller());
    }

    fn mma_m16n8k16_f16(self, d: &mut [Lanes<f32>; 4], a: [Lanes<u32>; 4], b: [Lanes<u32>; 2]) {
        self.count_mma(m16n8k16::K);
        matrix::mma_m16n8k16(d, a, b, |bits| f16::from_bits(bits).to_f32());
    }
    fn mma_m16n8k16_bf16(self, d: &mut [Lanes<f32>; 4], a: [Lanes<u32>; 4], b: [Lanes<u32>; 2]) {
        self.count_mma(m16n8k16::K);
        matrix::mma_m16n8k16(d, a, b, |bits| bf16::from_bits(bits).to_f32());
    }
    fn mma_m16n8k32_e4m3(self, d: &mut [Lanes<f32>; 4], a: [Lanes<u32>; 4], b: [Lanes<u32>; 2]) {
        self.count_mma(m16n8k32::K);
        matrix::mma_m16n8k32_e4m3(d, a, b, self.cta.accumulators);
    }
    fn mma_m16n8k32_e4m3_f16(self, d: &mut [Lanes<u32>; 2], a: [Lanes<u32>; 4], b: [Lanes<u32>; 2]) {
        self.count_mma(m16n8k32::K);
        matrix::mma_m16n8k32_e4m3_f16(d, a, b);
    }
    fn mma_m16n8k32_mxf8(self, d: &mut [Lanes<f32>; 4], a: [Lanes<u32>; 4], b: [Lanes<u32>; 2]) {
        self.count_mma(m16n8k32::K);
        matrix::mma_m16n8k32_e4m3(d, a, b, Accumulators::Full);
    }
    fn mma_m16n8k32_s8(self, d: &mut [Lanes<u32>; 4], a: [Lanes<u32>; 4], b: [Lanes<u32>; 2]) {
        self.count_mma(m16n8k32::K);
        matrix::mma_m16n8k32_s8(d, a, b);
    }
    fn mma_m16n8k64_nvf4<const ID_A: u32, const ID_B: u32>(
        self,
        d: &mut [Lanes<f32>; 4],
        a: [Lanes<u32>; 4],
        b: [Lanes<u32>; 2],
        scale_a: Lanes<u32>,
        scale_b: Lanes<u32>,
    ) {
        const { assert!(ID_A < 2 && ID_B < 4) };
        self.count_mma(m16n8k64::K);
        matrix::mma_m16n8k64_nvf4(d, a, b, [scale_a, scale_b], [ID_A, ID_B]);
    }
}

impl Emu<'_> {
    fn arrive(self, barrier: u32, bytes: u32, location: &'static Location<'static>) {
        self.check_barrier(barrier, location);
        let place = self.place(0, Access::Mbarrier, location);
        let result = {
            let clocks = self.cta.clocks.borrow();
            self.cta.bulk.borrow_mut().arrive(barrier, bytes, clocks.of(self.warp), place)
        };
        result.unwrap_or_else(|fault| fault.raise());
        // What the warp does from here on, the arrival did not know of.
        self.cta.clocks.borrow_mut().advance(self.warp);
        self.give_way();
    }

    fn change_registers(self, increases: bool, count: u32, location: &'static Location<'static>) {
        let change = Change::new(increases, count, self.place(0, Access::Registers, location));
        let change = change.unwrap_or_else(|fault| fault.raise());
        self.cta.register_changes.borrow_mut()[self.warp].push(change);
    }

    /// Refuses an mbarrier that this warp does not know of.
    fn check_barrier(self, address: u32, location: &'static Location<'static>) {
        let access = self.place(0, Access::Mbarrier, location);
        let result = self.cta.bulk.borrow().barrier(address, access).and_then(|barrier| {
            let (made, count) = barrier.made;
            match self.cta.clocks.borrow().ordered(self.warp, made.warp, count) {
                true => Ok(()),
                false => Err(Fault::MbarrierMisused { address, access }),
            }
        });
        result.unwrap_or_else(|fault| fault.raise());
    }

    fn start_bulk_copy(
        self,
        destination: u32,
        map: u64,
        coordinates: [u32; 4],
        address: u32,
        place: Place,
    ) -> Result<(), Fault> {
        let map = TensorMap::at(map, place)?;
        if !coordinates[0].is_multiple_of(8) {
            return Err(Fault::BoxUnaligned { column: coordinates[0], access: place });
        }
        if !destination.is_multiple_of(128) {
            return Err(Fault::Misaligned { address: destination.into(), alignment: 128, access: place });
        }
        let (mut bulk, mut shared, clocks) =
            (self.cta.bulk.borrow_mut(), self.cta.shared.borrow_mut(), self.cta.clocks.borrow());
        let barrier = bulk.barrier(address, place)?;
        let (made, count) = barrier.made;
        if !clocks.proxied(self.warp, made.warp, count) {
            return Err(Fault::ProxyFence { address, first: made, second: place });
        }
        let awaited = (barrier.agent, barrier.phase + 1);
        let mut chunks = Vec::new();
        for (source, to) in map.chunks(coordinates, destination) {
            let bytes = match source {
                Some(source) => self.cta.global.read(source, place)?,
                None => [0; 16],
            };
            shared.begin_bulk_copy(to, place, &clocks, awaited)?;
            self.cta.count(|c| c.global_bytes_read += if source.is_some() { 16 } else { 0 });
            chunks.push((to, bytes));
        }
        self.cta.count(|c| c.bulk_copies += 1);
        bulk.start(BulkCopy { barrier: address, chunks }, place);
        Ok(())
    }

    /// Counts a matrix instruction over `k` values of k.
    fn count_mma(self, k: usize) {
        self.cta.count(|c| {
            c.mma += 1;
            c.mma_flops += 2 * (m16n8k16::M * m16n8k16::N * k) as u64;
        });
    }
}
