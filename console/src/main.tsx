import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/parts.css";
import "./style/views.css";
import "./style/overview.css";
import "./parts/theme.ts";
import { followChanges } from "./live/changes.ts";
import { Shell } from "./views/shell.tsx";

render(<Shell />, document.getElementById("app")!);
void followChanges();
