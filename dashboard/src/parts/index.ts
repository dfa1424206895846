export * from "./blocks";
export * from "./table";
