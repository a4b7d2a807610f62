import { render } from "preact";
import "./style/base.css";
import "./style/parts.css";
import "./style/views.css";
import "./style/overview.css";
import "./parts/theme.ts";
import { Fleet } from "./views/fleet/fleet.tsx";

render(<Fleet />, document.getElementById("app")!);
