//! Reads IR files, prints what the reader finds in them and how long reading takes: `read MODEL.xml...`.

use std::time::Instant;

fn main() -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        let xml = std::fs::read(&path)?;
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = Instant::now();
            let result = ovir_ir::read_document(&xml);
            best = best.min(start.elapsed().as_secs_f64() * 1e3);
            drop(result);
        }
        let (document, diagnostics) = ovir_ir::read_document(&xml);
        let (layers, edges) = document.map_or((0, 0), |d| (d.body.layers.len(), d.body.edges.len()));
        #[allow(clippy::print_stdout)]
        {
            println!("{path}: {} bytes, {layers} layers, {edges} edges, {best:.2} ms", xml.len());
            for diagnostic in &diagnostics {
                println!("  {} {} {:?}", diagnostic.code, diagnostic.message, diagnostic.primary);
            }
        }
    }
    Ok(())
}
