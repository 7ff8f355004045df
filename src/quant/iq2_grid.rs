//! The codebook of `IQ2_XXS`: 256 points of eight levels each, and the signs that go with them.
//!
//! The codes are part of the file format as defined by GGML (MIT licence, Copyright (c) 2023-2026 The
//! ggml authors). A test pins codes and grid by their digests.

/// Digits 0, 1, 2 of a code as levels of the decoder. (The quantizer works with 8, 24, 40, that is
/// with 1, 3, 5: the difference belongs to the format.)
pub(super) const LEVELS: [u8; 3] = [8, 25, 43];

/// Sorted codes of the grid: bits 2i, 2i+1 are the digit of weight i.
#[rustfmt::skip]
pub(super) const CODES: [u16; 256] = [
    0, 2, 5, 8, 10, 17, 20, 32, 34, 40, 42, 65,
    68, 80, 88, 97, 100, 128, 130, 138, 162, 257, 260, 272,
    277, 320, 388, 408, 512, 514, 546, 642, 1025, 1028, 1040, 1057,
    1060, 1088, 1090, 1096, 1120, 1153, 1156, 1168, 1188, 1280, 1282, 1288,
    1312, 1350, 1385, 1408, 1425, 1545, 1552, 1600, 1668, 1700, 2048, 2053,
    2056, 2068, 2088, 2113, 2116, 2128, 2130, 2184, 2308, 2368, 2562, 2580,
    4097, 4100, 4112, 4129, 4160, 4192, 4228, 4240, 4245, 4352, 4360, 4384,
    4432, 4442, 4480, 4644, 4677, 5120, 5128, 5152, 5157, 5193, 5248, 5400,
    5474, 5632, 5654, 6145, 6148, 6160, 6208, 6273, 6400, 6405, 6560, 6737,
    8192, 8194, 8202, 8260, 8289, 8320, 8322, 8489, 8520, 8704, 8706, 9217,
    9220, 9232, 9280, 9302, 9472, 9537, 9572, 9872, 10_248, 10_272, 10_388, 10_820,
    16_385, 16_388, 16_400, 16_408, 16_417, 16_420, 16_448, 16_456, 16_470, 16_480, 16_513, 16_516,
    16_528, 16_640, 16_672, 16_737, 16_768, 16_773, 16_897, 16_912, 16_968, 16_982, 17_000, 17_408,
    17_416, 17_440, 17_536, 17_561, 17_682, 17_700, 17_920, 18_433, 18_436, 18_448, 18_496, 18_501,
    18_688, 18_776, 18_785, 18_818, 19_013, 19_088, 20_480, 20_488, 20_497, 20_505, 20_512, 20_608,
    20_616, 20_740, 20_802, 20_900, 21_137, 21_648, 21_650, 21_770, 22_017, 22_100, 22_528, 22_545,
    22_553, 22_628, 22_848, 23_048, 24_580, 24_592, 24_640, 24_680, 24_832, 24_917, 25_112, 25_184,
    25_600, 25_605, 25_872, 25_874, 25_988, 26_690, 32_768, 32_770, 32_778, 32_833, 32_898, 33_028,
    33_048, 33_088, 33_297, 33_793, 33_796, 33_808, 33_813, 33_856, 33_888, 34_048, 34_118, 34_196,
    34_313, 34_368, 34_400, 34_818, 35_076, 35_345, 36_868, 36_880, 36_900, 36_928, 37_025, 37_142,
    37_248, 37_445, 37_888, 37_922, 37_956, 38_225, 39_041, 39_200, 40_962, 41_040, 41_093, 41_225,
    41_472, 42_008, 43_088, 43_268,
];

/// The grid: eight levels per entry, the first weight in the lowest byte.
pub static GRID: [u64; 256] = grid();

const fn grid() -> [u64; 256] {
    let mut grid = [0; 256];
    let mut entry = 0;
    while entry < 256 {
        let mut i = 0;
        while i < 8 {
            let digit = (CODES[entry] >> (2 * i)) & 3;
            grid[entry] |= (LEVELS[digit as usize] as u64) << (8 * i);
            i += 1;
        }
        entry += 1;
    }
    grid
}

/// The 32 sign bits (1: negative) behind the four 7-bit fields of word B: the eighth bit of every byte
/// makes the number of minus signs even.
#[inline]
pub(super) fn expand_signs(word: u32) -> u32 {
    let fields =
        (word & 0x7F) | (word << 1) & 0x7F00 | (word << 2) & 0x7F_0000 | (word << 3) & 0x7F00_0000;
    // Bit 0 of every byte of `fold` becomes the parity of that byte; what is shifted in from the next
    // byte never reaches it.
    let mut fold = fields ^ (fields >> 4);
    fold ^= fold >> 2;
    fold ^= fold >> 1;
    fields | (fold & 0x0101_0101) << 7
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::hex;

    #[test]
    fn codes_and_grid_are_the_format_s() {
        let codes: Vec<u8> = CODES.iter().flat_map(|c| c.to_le_bytes()).collect();
        assert_eq!(
            hex::sha256(&codes),
            "915952ebc4af8ddba8113583ca1316fc818843f7b825bbf1a25ae1c39bf0e16d"
        );
        let grid: Vec<u8> = GRID.iter().flat_map(|g| g.to_le_bytes()).collect();
        assert_eq!(
            hex::sha256(&grid),
            "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54"
        );
    }

    #[test]
    fn signs_are_the_classic_table() {
        let table: Vec<u8> = (0..128).map(|i| expand_signs(i).to_le_bytes()[0]).collect();
        assert_eq!(
            hex::sha256(&table),
            "a76742a603f8beca5212ecce0f1f02f11a4887fd2f7c8b15aca0ea3eb3380c31"
        );
    }

    #[test]
    fn fields_do_not_touch_each_other() {
        for i in 0..128u32 {
            let one = expand_signs(i);
            let word = i | (127 - i) << 7 | i << 14 | (127 - i) << 21 | 0xF000_0000;
            let other = expand_signs(127 - i);
            assert_eq!(expand_signs(word), one | other << 8 | one << 16 | other << 24);
        }
    }
}
