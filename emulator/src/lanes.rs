//! Lane-varying values: one per lane, all 32 computed in step.

use std::array::from_fn;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

use cuda_std::{LaneBool, LaneF32, LaneU32, LaneU64};

/// One value per lane of a warp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lanes<T>(pub [T; 32]);

impl<T: Copy> Lanes<T> {
    /// The same value in every lane.
    #[inline]
    pub fn splat(value: T) -> Self {
        Lanes([value; 32])
    }

    /// A value per lane from its index.
    #[inline]
    pub fn from_fn(f: impl FnMut(usize) -> T) -> Self {
        Lanes(from_fn(f))
    }

    /// Each lane's value through `f`.
    #[inline]
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Lanes<U> {
        Lanes(self.0.map(f))
    }

    /// Two values of each lane through `f`.
    #[inline]
    pub fn zip<U: Copy, V>(self, other: Lanes<U>, mut f: impl FnMut(T, U) -> V) -> Lanes<V> {
        Lanes(from_fn(|i| f(self.0[i], other.0[i])))
    }
}

/// Implements an operator with a lane-varying and, where asked for, a uniform right-hand side.
macro_rules! operator {
    ($operator:ident::$method:ident for $left:ty $(, $right:ty)* => $f:expr) => {
        impl $operator for Lanes<$left> {
            type Output = Self;
            #[inline]
            #[track_caller]
            fn $method(self, right: Self) -> Self {
                self.zip(right, $f)
            }
        }
        $(
            impl $operator<$right> for Lanes<$left> {
                type Output = Self;
                #[inline]
                #[track_caller]
                fn $method(self, right: $right) -> Self {
                    self.map(|left| $f(left, right))
                }
            }
        )*
    };
}

// An address that overflows would wrap on hardware and point somewhere else: here it panics, which is a fault.
operator!(Add::add for u32, u32 => |a: u32, b: u32| a.checked_add(b).expect("32-bit lane addition overflows"));
operator!(Sub::sub for u32 => |a: u32, b: u32| a.checked_sub(b).expect("32-bit lane subtraction underflows"));
operator!(Mul::mul for u32, u32 => |a: u32, b: u32| a.checked_mul(b).expect("32-bit lane product overflows"));
operator!(Div::div for u32, u32 => |a: u32, b: u32| a / b);
operator!(Rem::rem for u32, u32 => |a: u32, b: u32| a % b);
operator!(BitXor::bitxor for u32, u32 => |a: u32, b: u32| a ^ b);
operator!(BitOr::bitor for u32 => |a: u32, b: u32| a | b);
operator!(BitAnd::bitand for u32, u32 => |a: u32, b: u32| a & b);
operator!(Shl::shl for u32, u32 => |a: u32, b: u32| a << b);
operator!(Shr::shr for u32, u32 => |a: u32, b: u32| a >> b);
operator!(Add::add for u64, u64 => |a: u64, b: u64| a.checked_add(b).expect("64-bit lane addition overflows"));
operator!(Add::add for f32 => |a: f32, b: f32| a + b);
operator!(Sub::sub for f32 => |a: f32, b: f32| a - b);
operator!(Mul::mul for f32, f32 => |a: f32, b: f32| a * b);
operator!(BitAnd::bitand for bool => |a: bool, b: bool| a & b);
operator!(BitOr::bitor for bool => |a: bool, b: bool| a | b);

impl Shl<u32> for Lanes<u64> {
    type Output = Self;
    #[inline]
    fn shl(self, bits: u32) -> Self {
        self.map(|a| a << bits)
    }
}

impl Neg for Lanes<f32> {
    type Output = Self;
    #[inline]
    fn neg(self) -> Self {
        self.map(|a| -a)
    }
}

impl Not for Lanes<bool> {
    type Output = Self;
    #[inline]
    fn not(self) -> Self {
        self.map(|a| !a)
    }
}

impl LaneU32 for Lanes<u32> {
    fn multiply_wide(self, other: u32) -> [Self; 2] {
        let product = self.map(|a| u64::from(a) * u64::from(other));
        [product.map(|p| p as u32), product.map(|p| (p >> 32) as u32)]
    }
}
impl LaneU64 for Lanes<u64> {}
impl LaneF32 for Lanes<f32> {}
impl LaneBool for Lanes<bool> {}
