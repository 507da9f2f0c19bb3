// Writes a .gz beside every built text file, for the server to send as it is, and prints sizes.
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const folder = new URL("../../src/nearcast/server/http/web/", import.meta.url).pathname;
const TEXT = /\.(js|mjs|css|html|json|svg|txt)$/;

function* files(at) {
  for (const name of readdirSync(at)) {
    const path = join(at, name);
    if (statSync(path).isDirectory()) yield* files(path);
    else if (TEXT.test(name)) yield path;
  }
}

let total = 0;
for (const path of files(folder)) {
  // A fixed time in the header: the same input gives the same bytes.
  const packed = gzipSync(readFileSync(path), { level: 9 });
  packed.fill(0, 4, 8);
  writeFileSync(`${path}.gz`, packed);
  total += packed.length;
}
console.log(`All files together: ${(total / 1000).toFixed(0)} KB gzipped.`);
