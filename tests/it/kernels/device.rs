//! Listing, opening, memory, copies.

use super::{assert_quiet, open};
use q36::kernels;
use q36::util::units::Bytes;
use q36::vulkan::{self, Ability, Arena, Error, Rank, Residence, Validation};

#[test]
fn devices_are_listed_with_score_and_what_they_can_do() {
    let listed = match vulkan::list(&Rank::default()) {
        Ok(listed) => listed,
        Err(e @ (Error::Loader(_) | Error::Instance(_) | Error::NoDriver)) => {
            assert!(e.to_string().contains("Vulkan"), "{e}");
            return crate::support::skip("needs a Vulkan loader");
        }
        Err(e) => panic!("{e}"),
    };
    for (i, device) in listed.iter().enumerate() {
        let info = &device.info;
        assert_eq!(info.index, i);
        assert!(!info.name.is_empty() && info.uuid.len() == 32, "{info:?}");
        assert_eq!(device.refusal.is_some(), !info.missing.is_empty());
        if device.refusal.is_none() {
            assert!(info.api >= (1, 3) && info.usable <= info.heap, "{info:?}");
            assert!(info.caps.limits.storage_bytes >= 128 << 20, "{:?}", info.caps.limits);
            assert!(info.caps.subgroups.default.is_power_of_two());
            for (kernel, choice) in kernels::chosen(&info.caps) {
                assert!(choice.is_ok(), "{}: {kernel}: {choice:?}", info.name);
            }
        }
    }
}

#[test]
fn switched_off_abilities_are_gone() {
    let Some((device, _queue)) = open(Validation::Off) else { return };
    let off: Vec<Ability> = Ability::all().collect();
    let physical = device.instance().devices().unwrap().swap_remove(device.info().index);
    let options = vulkan::Options { off, ..Default::default() };
    let (bare, _queue) = vulkan::Device::open(&physical, &options).unwrap();
    assert_eq!(bare.caps().abilities().count(), 0);
    assert_eq!(bare.caps().subgroup_size(64), bare.caps().subgroups.default);
}

#[test]
fn copies_of_many_pieces_come_back_as_they_went() {
    let Some((device, mut queue)) = open(Validation::Synchronization) else { return };
    let arena = Arena::new(&device, "test", Residence::Device, 1 << 20);
    // Three pieces of staging, the last one short, at an offset.
    let bytes: Vec<u8> =
        (0..(36 << 20) + 12_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let buffer = arena.buffer("large", bytes.len() as u64 + 512).unwrap();
    let slice = buffer.slice(256, bytes.len() as u64);
    queue.upload(&slice, &bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    queue.download(&slice, &mut back).unwrap();
    assert!(back == bytes);
    assert_quiet(&device);
}

#[test]
fn an_arena_hands_memory_out_again() {
    let Some((device, _queue)) = open(Validation::Synchronization) else { return };
    let arena = Arena::new(&device, "test", Residence::Upload, 1 << 20);
    let first = arena.buffer("a", 300_000).unwrap();
    let second = arena.buffer("b", 300_000).unwrap();
    first.write(100, b"first");
    second.write(100, b"other");
    let mut read = [0; 5];
    first.read(100, &mut read);
    assert_eq!(&read, b"first");
    assert_eq!(arena.reserved(), Bytes(1 << 20));
    drop((first, second));
    assert_eq!(arena.used(), Bytes(0));
    let large = arena.buffer("larger than a block", 3 << 20).unwrap();
    assert!(arena.reserved().0 >= 4 << 20 && large.bytes() == 3 << 20);
    // More than there is: an error that says what for, and everything still works.
    let heap = device.info().heap.0;
    let error = arena.buffer("too much", heap.saturating_mul(4)).err().unwrap().to_string();
    assert!(error.contains("memory") || error.contains("vkCreateBuffer"), "{error}");
    arena.buffer("fits", 4).unwrap();
}

#[test]
fn a_pipeline_cache_survives_and_a_foreign_one_is_ignored() {
    let Some((device, _queue)) = open(Validation::Synchronization) else { return };
    kernels::norm_cvt::RmsNorm::new(&device, 256).unwrap();
    let blob = device.pipeline_cache().unwrap();
    let physical = device.instance().devices().unwrap().swap_remove(device.info().index);
    for cache in [blob, vec![7; 100]] {
        let options = vulkan::Options { pipeline_cache: cache, ..Default::default() };
        let (again, _queue) = vulkan::Device::open(&physical, &options).unwrap();
        kernels::norm_cvt::RmsNorm::new(&again, 256).unwrap();
        assert!(again.pipeline_cache().unwrap().len() >= 32);
    }
    assert_quiet(&device);
}
