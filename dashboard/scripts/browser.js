// Print the path of a Chromium that comes from the registry; unpacks it at the first call.
import chromium from "@sparticuz/chromium";

console.log(await chromium.executablePath());
