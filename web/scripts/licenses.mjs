// Writes the licenses of all packages that are part of the built page, as they ask for.
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const web = new URL("../", import.meta.url).pathname;
const out = new URL("../../src/nearcast/server/http/web/assets/licenses.txt", import.meta.url);
const lock = JSON.parse(readFileSync(join(web, "package-lock.json"), "utf8"));

const parts = [
  "Land and borders: Natural Earth, public domain. Cities: GeoNames, CC BY 4.0 (https://www.geonames.org).\n",
];
for (const [folder, about] of Object.entries(lock.packages)) {
  if (!folder || about.dev || !existsSync(join(web, folder))) continue;
  const file = readdirSync(join(web, folder)).find((name) => /^(licen[sc]e|copying)/i.test(name));
  const text = file ? readFileSync(join(web, folder, file), "utf8").trim() : about.license;
  parts.push(`--- ${folder.replace(/^.*node_modules\//, "")} ${about.version}\n\n${text}\n`);
}
writeFileSync(out, parts.join("\n"));
