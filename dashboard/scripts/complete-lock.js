// Name in the lock file also the packages of other platforms that a registry did not have.
//
// `npm ci` refuses a lock that lacks an optional dependency, and npm leaves out those that it could
// not find: mirrors often hold one platform only. Their versions are exact, so the lock can say them
// without having seen them. Run by `npm run lock`.
import { readFileSync, writeFileSync } from "node:fs";

const PATH = new URL("../package-lock.json", import.meta.url);
const SYSTEMS = ["android", "darwin", "freebsd", "linux", "netbsd", "openbsd", "openharmony", "sunos", "aix", "win32"];
const EXACT = /^\d+\.\d+\.\d+[\w.-]*$/;

const lock = JSON.parse(readFileSync(PATH, "utf8"));
const missing = Object.values(lock.packages)
  .flatMap((each) => Object.entries(each.optionalDependencies ?? {}))
  .filter(([name, version]) => EXACT.test(version) && !lock.packages[`node_modules/${name}`]);
for (const [name, version] of missing) {
  const system = SYSTEMS.find((each) => name.includes(each));
  lock.packages[`node_modules/${name}`] = { version, optional: true, ...(system ? { os: [system] } : { cpu: ["wasm32"] }) };
}
lock.packages = Object.fromEntries(Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : 1)));
writeFileSync(PATH, `${JSON.stringify(lock, null, 2)}\n`);
