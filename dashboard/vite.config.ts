// The build goes into the Python package, from where brokers serve it and wheels carry it.
import { defineConfig } from "vite";

const broker = process.env.SKEP_URL ?? "http://127.0.0.1:6632";
const proxied = Object.fromEntries(
  ["/api", "/streams/v1", "/metrics", "/health", "/docs", "/openapi.json"].map((path) => [path, broker]),
);

export default defineConfig({
  build: {
    outDir: "../src/skep/dashboard/site",
    emptyOutDir: true,
    // The first browsers with light-dark(), which the colours are made of.
    target: ["chrome123", "firefox121", "safari17.5"],
    // Everything comes from files of its own: the content security policy allows nothing inline.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: proxied },
});
