//! Reads an IR file and prints it again: `rewrite MODEL.xml > COPY.xml`.

use std::io::Write;

fn main() -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        let xml = std::fs::read(&path)?;
        if let (Some(document), _) = ovir_ir::read_document(&xml) {
            std::io::stdout().write_all(ovir_ir::write_document(&document).as_bytes())?;
        }
    }
    Ok(())
}
