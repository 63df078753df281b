//! Labels beside the ends of lines: as near to their lines as they can be, never on each other.
//!
//! It knows nothing of the text; the caller makes the room high enough.

/// Places for labels that would like to stand at `wanted`, at least `pitch` apart, in `room`.
///
/// The sum of the squared moves is the smallest possible, and the order of the labels is the
/// order of the wishes (equal wishes keep theirs). The answer has the order of the input.
///
/// # Panics
/// If the room cannot hold them all.
#[must_use]
pub(super) fn spread(wanted: &[f64], pitch: f64, room: (f64, f64)) -> Vec<f64> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let last_offset = pitch * (wanted.len() - 1) as f64;
    assert!(
        room.0 + last_offset <= room.1 + 1e-6,
        "the room is too low for {} labels",
        wanted.len()
    );
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));

    // With each wish shifted by its place times the pitch, "apart" becomes "not descending", and
    // pooling neighbours that descend into their mean is the least-squares answer.
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (place, index) in order.iter().enumerate() {
        let mut pool = (wanted[*index] - place as f64 * pitch, 1);
        while let Some(before) = pools.pop_if(|before| before.0 > pool.0) {
            let members = before.1 + pool.1;
            pool =
                ((before.0 * before.1 as f64 + pool.0 * pool.1 as f64) / members as f64, members);
        }
        pools.push(pool);
    }
    let shifted = pools.into_iter().flat_map(|(mean, members)| std::iter::repeat_n(mean, members));
    let mut placed = vec![0.0; wanted.len()];
    for ((place, index), mean) in order.into_iter().enumerate().zip(shifted) {
        placed[index] = mean.clamp(room.0, room.1 - last_offset) + place as f64 * pitch;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_with_room_stay_where_they_are() {
        assert_eq!(spread(&[80.0, 10.0, 40.0], 15.0, (0.0, 100.0)), [80.0, 10.0, 40.0]);
        assert!(spread(&[], 15.0, (0.0, 100.0)).is_empty());
    }

    #[test]
    fn labels_that_touch_share_the_move() {
        assert_eq!(spread(&[50.0, 50.0], 10.0, (0.0, 100.0)), [45.0, 55.0]);
    }

    #[test]
    fn any_wishes_end_apart_and_inside() {
        for seed in 0..200u64 {
            let wish = |i: u64| ((seed * 7919 + i * 104_729) % 1000) as f64 / 10.0;
            let wanted: Vec<f64> = (0..7).map(wish).collect();
            let mut placed = spread(&wanted, 14.0, (0.0, 100.0));
            placed.sort_by(f64::total_cmp);
            assert!(placed.windows(2).all(|pair| pair[1] - pair[0] >= 14.0 - 1e-6), "{placed:?}");
            assert!(placed[0] >= -1e-6 && placed[6] <= 100.0 + 1e-6, "{placed:?}");
        }
    }
}
