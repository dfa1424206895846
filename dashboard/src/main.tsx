import { render } from "preact";
import { App } from "./app";
import { interceptLinks } from "./state/place";
import { watchTheme } from "./state/theme";

watchTheme();
interceptLinks();
const root = document.getElementById("app");
if (root) render(<App />, root);
