//! What a list of requests costs the generator, beside one request that is repeated: CPU time of this thread for
//! each answer, in turns of some milliseconds in random order.
//!
//! ```text
//! pollux serve --reply 128 --listen 127.0.0.1:8080 & cargo run --release -p pollux-load --example list_cost -- \
//!     http://127.0.0.1:8080 20
//! ```
//!
//! The second word is how many sets are measured, each with connections of its own.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use pollux_load::{End, Plan, RequestList, RequestOrder, Target, Turns};
use pollux_stats::{mean, set_ratio, standard_deviation, student_t_quantile};
use rustix::time::{ClockId, clock_gettime};

const LINES: u32 = 100_000;
const ROUNDS: usize = 60;
const REQUESTS: u64 = 1_000;

/// What is compared: the name, which request each line is, and in which order they are sent.
const ARMS: [(&str, u32, RequestOrder, bool); 5] = [
    ("one", 1, RequestOrder::InTurn, false),
    ("one again", 1, RequestOrder::InTurn, false),
    ("in turn", LINES, RequestOrder::InTurn, false),
    ("random", LINES, RequestOrder::Random, false),
    ("weighted", LINES, RequestOrder::Random, true),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let base = words.next().ok_or("expected a URL")?;
    let sets: usize = words.next().ok_or("expected a number of sets")?.parse()?;
    let mut random = fastrand::Rng::with_seed(1);
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); ARMS.len()];
    let mut costs = vec![0.0; ARMS.len()];
    for _ in 0..sets {
        let mut arms =
            ARMS.map(|arm| opened(&base, arm)).into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut us: Vec<Vec<f64>> = vec![Vec::new(); ARMS.len()];
        for round in 0..ROUNDS + 3 {
            let mut order: Vec<usize> = (0..ARMS.len()).collect();
            random.shuffle(&mut order);
            for arm in order {
                arms[arm].turn(Duration::from_secs(5), Some(REQUESTS / 4))?;
                let before = cpu_us();
                let turned = arms[arm].turn(Duration::from_secs(5), Some(REQUESTS))?;
                if round >= 3 {
                    us[arm].push((cpu_us() - before) / turned.right as f64);
                }
            }
        }
        for (arm, own) in us.iter().enumerate() {
            ratios[arm].push(set_ratio(own, &us[0]).ok_or("no ratio")?.log_ratio);
            costs[arm] += own.iter().sum::<f64>() / (ROUNDS * sets) as f64;
        }
    }
    for (arm, ratios) in ratios.iter().enumerate() {
        let error =
            standard_deviation(ratios).ok_or("too few sets")? / (ratios.len() as f64).sqrt();
        let reach = student_t_quantile(0.975, ratios.len() as u32 - 1) * error;
        let mean = mean(ratios).ok_or("no sets")?;
        let [low, high] = [mean - reach, mean + reach].map(f64::exp);
        let name = ARMS[arm].0;
        let cost = costs[arm];
        let mean = mean.exp();
        writeln!(std::io::stdout(), "{name:10} {cost:6.3} us  {mean:.3} [{low:.3}, {high:.3}]")?;
    }
    Ok(())
}

fn opened(
    base: &str,
    (_, lines, order, is_weighted): (&str, u32, RequestOrder, bool),
) -> Result<Turns, Box<dyn std::error::Error>> {
    let mut list = RequestList::new(false);
    let mut target = Target::parse(&format!("{base}/"), None)?;
    for line in 0..lines {
        target.path = format!("/item/{line:06}?x={}", line % 1000);
        target.fields = vec![("X-Number".to_owned(), line.to_string())];
        target.weight = if is_weighted { 1 + line % 5 } else { 1 };
        list.push(&target)?;
    }
    let driver = "uring".parse()?;
    Ok(Turns::open(Plan {
        list: Some((Arc::new(list), order)),
        connections: 64,
        end: End { requests: None, after: Some(Duration::from_secs(1)) },
        seed: 1,
        ..Plan::new(vec![target], driver)
    })?)
}

fn cpu_us() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}
