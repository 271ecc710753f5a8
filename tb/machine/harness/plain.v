// Loads a program and external memory, and takes the steps of a file: words for memory, registers,
// runs, and what is expected then, which is the golden model's.
//
// Needs the accelerator's Verilog and the files program.hex, memory.hex and steps.hex beside it:
//   iverilog -g2005 -o test.vvp celosia_accelerator_tb.v celosia_accelerator.v && vvp -n test.vvp
//   (verilator --binary celosia_accelerator_tb.v celosia_accelerator.v, obj_dir/Vcelosia_accelerator_tb)
//
// The last line begins with PASS, or with FAIL, which ends the simulation with a status that is
// not 0. It has no `timescale`, as the accelerator has none: a delay is in whatever unit is set.

/* verilator lint_off WIDTH      */ // an address is counted in words of memory
/* verilator lint_off PINMISSING */ // outputs that nothing here depends on

module celosia_accelerator_tb;
  localparam MEM_BYTES = `MEM_WIDTH / 8;

  reg clk = 0;
  reg rst = 1;
  always #5 clk = ~clk;

  // External memory: a burst at a time in each direction, its first word LATENCY cycles later.
  reg [`MEM_WIDTH-1:0] memory [0:`MEMORY_WORDS-1];
  reg [31:0] words [0:`PROGRAM_WORDS-1];

  wire [63:0] read_at, write_at;
  wire [7:0] read_last, write_last;
  wire read_request_valid, write_request_valid;
  wire read_data_ready, write_data_valid;
  wire [`MEM_WIDTH-1:0] write_word;
  wire [MEM_BYTES-1:0] write_mask;
  wire mem_error;

  reg [31:0] read_addr = 0;
  reg [31:0] write_addr = 0;
  reg [8:0] read_left = 0;
  reg [8:0] write_left = 0;
  reg [7:0] waiting = 0;
  reg written = 0;
  wire read_request_ready = read_left == 0;
  wire read_data_valid = read_left != 0 && waiting == 0;
  wire [`MEM_WIDTH-1:0] read_data = memory[read_addr];
  wire write_request_ready = write_left == 0 && !written;
  wire write_data_ready = write_left != 0;

  always @(posedge clk) begin
    if (read_request_valid && read_request_ready) begin
      read_addr <= (read_at - `BUS_BASE) / MEM_BYTES;
      read_left <= read_last + 1;
      waiting <= `LATENCY;
    end else if (waiting != 0) begin
      waiting <= waiting - 1;
    end else if (read_data_valid && read_data_ready) begin
      read_addr <= read_addr + 1;
      read_left <= read_left - 1;
    end
  end

  integer index;
  always @(posedge clk) begin
    written <= 0;
    if (write_request_valid && write_request_ready) begin
      write_addr <= (write_at - `BUS_BASE) / MEM_BYTES;
      write_left <= write_last + 1;
    end else if (write_data_valid && write_data_ready) begin
      for (index = 0; index < MEM_BYTES; index = index + 1)
        if (write_mask[index]) memory[write_addr][8 * index +: 8] <= write_word[8 * index +: 8];
      write_addr <= write_addr + 1;
      write_left <= write_left - 1;
      written <= write_left == 1;
    end
  end

`ifdef BUS_NATIVE
  wire [`BURST_WIDTH-1:0] read_request, write_request;
  wire [`WRITE_WIDTH-1:0] write_data;
  assign read_at = read_request[`BURST_ADDR_LSB +: `BURST_ADDR_WIDTH];
  assign read_last = read_request[`BURST_LAST_LSB +: `BURST_LAST_WIDTH];
  assign write_at = write_request[`BURST_ADDR_LSB +: `BURST_ADDR_WIDTH];
  assign write_last = write_request[`BURST_LAST_LSB +: `BURST_LAST_WIDTH];
  assign write_word = write_data[`WRITE_DATA_LSB +: `MEM_WIDTH];
  assign write_mask = write_data[`WRITE_MASK_LSB +: MEM_BYTES];
  assign mem_error = 0;
`endif
`ifdef BUS_AXI4
  wire [`BUS_ADDR_WIDTH-1:0] araddr, awaddr;
  assign read_at = araddr;
  assign write_at = awaddr;
`endif
`ifdef BUS_WISHBONE
  // A word at a time, each a burst of one; the bus keeps its signals until the acknowledge.
  wire wbm_cyc, wbm_stb, wbm_we;
  wire [`BUS_ADDR_WIDTH-1:0] wbm_adr;
  wire wbm_ack = wbm_we ? written : read_data_valid;
  reg begun = 0;
  always @(posedge clk) begun <= wbm_stb && !wbm_ack;
  assign read_at = wbm_adr;
  assign write_at = wbm_adr;
  assign read_last = 0;
  assign write_last = 0;
  assign read_request_valid = wbm_cyc && wbm_stb && !wbm_we && !begun;
  assign write_request_valid = wbm_cyc && wbm_stb && wbm_we && !begun;
  assign read_data_ready = 1;
  assign write_data_valid = 1;
`endif

  // The host: everything changes at falling edges.
  reg [31:0] value;
`ifdef CONTROL_NATIVE
  reg [7:0] host_addr = 0;
  reg host_write_en = 0;
  reg [31:0] host_write_data = 0;
  wire [31:0] host_read_data;

  task write_register(input [7:0] register, input [31:0] data);
    begin
      host_addr = register;
      host_write_data = data;
      host_write_en = 1;
      @(negedge clk) host_write_en = 0;
    end
  endtask

  task read_register(input [7:0] register);
    begin
      host_addr = register;
      @(negedge clk) value = host_read_data;
    end
  endtask
`endif
`ifdef CONTROL_AXI4_LITE
  reg [9:0] addr = 0;
  reg [31:0] wdata = 0;
  reg awvalid = 0, wvalid = 0, bready = 0, arvalid = 0, rready = 0;
  wire awready, wready, bvalid, arready, rvalid;
  wire [31:0] rdata;
  wire [1:0] bresp, rresp;

  task write_register(input [7:0] register, input [31:0] data);
    begin
      addr = {register, 2'b00};
      wdata = data;
      {awvalid, wvalid, bready} = 3'b111;
      @(negedge clk);
      while (!awready) @(negedge clk);
      @(negedge clk) {awvalid, wvalid} = 2'b00;
      while (!bvalid) @(negedge clk);
      @(negedge clk) bready = 0;
    end
  endtask

  task read_register(input [7:0] register);
    begin
      addr = {register, 2'b00};
      {arvalid, rready} = 2'b11;
      @(negedge clk);
      while (!arready) @(negedge clk);
      @(negedge clk) arvalid = 0;
      while (!rvalid) @(negedge clk);
      value = rdata;
      @(negedge clk) rready = 0;
    end
  endtask
`endif
`ifdef CONTROL_WISHBONE
  reg [9:0] addr = 0;
  reg [31:0] wdata = 0;
  reg cyc = 0, we = 0;
  wire ack, err;
  wire [31:0] rdata;

  task access(input [7:0] register, input write, input [31:0] data);
    begin
      addr = {register, 2'b00};
      wdata = data;
      we = write;
      cyc = 1;
      @(negedge clk);
      while (!ack && !err) @(negedge clk);
      value = rdata;
      @(negedge clk) cyc = 0;
    end
  endtask

  task write_register(input [7:0] register, input [31:0] data);
    access(register, 1'b1, data);
  endtask

  task read_register(input [7:0] register);
    access(register, 1'b0, 32'd0);
  endtask
`endif

  celosia_accelerator accelerator (
`ifdef CONTROL_NATIVE
    .host__addr(host_addr),
    .host__write_en(host_write_en),
    .host__write_data(host_write_data),
    .host__read_data(host_read_data),
`endif
`ifdef CONTROL_AXI4_LITE
    .s_axil_awaddr(addr), .s_axil_awprot(3'b0), .s_axil_awvalid(awvalid), .s_axil_awready(awready),
    .s_axil_wdata(wdata), .s_axil_wstrb(4'b1111), .s_axil_wvalid(wvalid), .s_axil_wready(wready),
    .s_axil_bresp(bresp), .s_axil_bvalid(bvalid), .s_axil_bready(bready),
    .s_axil_araddr(addr), .s_axil_arprot(3'b0), .s_axil_arvalid(arvalid), .s_axil_arready(arready),
    .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rvalid(rvalid), .s_axil_rready(rready),
`endif
`ifdef CONTROL_WISHBONE
    .wbs_cyc_i(cyc), .wbs_stb_i(cyc), .wbs_we_i(we), .wbs_adr_i(addr), .wbs_dat_i(wdata),
    .wbs_sel_i(4'b1111), .wbs_dat_o(rdata), .wbs_ack_o(ack), .wbs_err_o(err),
`endif
`ifdef BUS_NATIVE
    .mem_read__request__payload(read_request),
    .mem_read__request__valid(read_request_valid),
    .mem_read__request__ready(read_request_ready),
    .mem_read__data__payload(read_data),
    .mem_read__data__valid(read_data_valid),
    .mem_read__data__ready(read_data_ready),
    .mem_write__request__payload(write_request),
    .mem_write__request__valid(write_request_valid),
    .mem_write__request__ready(write_request_ready),
    .mem_write__data__payload(write_data),
    .mem_write__data__valid(write_data_valid),
    .mem_write__data__ready(write_data_ready),
    .mem_write__written(written),
    .mem_error(1'b0), .mem_reset(rst), .mem_forget(),
`endif
`ifdef BUS_AXI4
    .m_axi_araddr(araddr), .m_axi_arlen(read_last), .m_axi_arvalid(read_request_valid),
    .m_axi_arready(read_request_ready), .m_axi_rid(1'b0), .m_axi_rdata(read_data),
    .m_axi_rresp(2'b0), .m_axi_rlast(read_left == 1), .m_axi_rvalid(read_data_valid),
    .m_axi_rready(read_data_ready), .m_axi_awaddr(awaddr), .m_axi_awlen(write_last),
    .m_axi_awvalid(write_request_valid), .m_axi_awready(write_request_ready),
    .m_axi_wdata(write_word), .m_axi_wstrb(write_mask), .m_axi_wvalid(write_data_valid),
    .m_axi_wready(write_data_ready), .m_axi_bid(1'b0), .m_axi_bresp(2'b0), .m_axi_bvalid(written),
    .mem_error(mem_error),
`endif
`ifdef BUS_WISHBONE
    .wbm_cyc_o(wbm_cyc), .wbm_stb_o(wbm_stb), .wbm_we_o(wbm_we), .wbm_adr_o(wbm_adr),
    .wbm_dat_o(write_word), .wbm_sel_o(write_mask), .wbm_dat_i(read_data), .wbm_ack_i(wbm_ack),
    .wbm_err_i(1'b0), .mem_error(mem_error),
`endif
`ifdef THROTTLE
    .thermal__temperature(8'd0), .thermal__hot(8'd255), .thermal__cool(8'd255),
`endif
    .irq(),
    .clk(clk),
    .rst(rst)
  );

  // A step is what to do, a word of memory or a register, and a value: of a run its first word.
  localparam SET_WORD = 0, SET_REGISTER = 1, RUN = 2, WORD_IS = 3, REGISTER_IS = 4;
  reg [`STEP_WIDTH-1:0] steps [0:`STEPS-1];
  reg [7:0] action;
  reg [31:0] place;
  reg [`VALUE_WIDTH-1:0] data;
  integer step, runs, wrong, busy;
  reg [63:0] cycles;

  task run(input [31:0] first);
    begin
      write_register(`PC, first);
      busy = 0;
      write_register(`CONTROL, 1);
      read_register(`STATUS);
      while (value[0]) read_register(`STATUS);
      if (value != 0 || mem_error) begin
        $display("STATUS is %b", value);
        wrong = wrong + 1;
      end
      read_register(`CYCLES_LOW);
      $display("run %0d: %0d cycles", runs, value);
      cycles = cycles + value;
      runs = runs + 1;
    end
  endtask

  task expect_value(input [`VALUE_WIDTH-1:0] found);
    if (found !== data) begin
      if (wrong < 10)
        $display("%0s %0d is %h, expected %h", action == WORD_IS ? "word" : "register", place,
                 found, data);
      wrong = wrong + 1;
    end
  endtask

  // Ends the simulation with status 1, as each simulator has it.
  task fail;
`ifdef __ICARUS__
    $finish_and_return(1);
`elsif VERILATOR
    $stop;
`else
    $fatal;
`endif
  endtask

  initial begin
    $readmemh("program.hex", words);
    $readmemh("memory.hex", memory);
    $readmemh("steps.hex", steps);
    wrong = 0;
    runs = 0;
    cycles = 0;
    busy = 0;
    repeat (4) @(negedge clk);
    rst = 0;
    @(negedge clk);
    write_register(`PROGRAM_ADDR, 0);
    for (step = 0; step < `PROGRAM_WORDS; step = step + 1)
      write_register(`PROGRAM_DATA, words[step]);
    for (step = 0; step < `STEPS; step = step + 1) begin
      {action, place, data} = steps[step];
      case (action)
        SET_WORD: memory[place] = data[`MEM_WIDTH-1:0];
        SET_REGISTER: write_register(place[7:0], data[31:0]);
        RUN: run(data[31:0]);
        WORD_IS: expect_value(memory[place]);
        default: begin
          read_register(place[7:0]);
          expect_value(value);
        end
      endcase
    end
    if (wrong != 0) begin
      $display("FAIL: %0d differences", wrong);
      fail;
    end else $display("PASS: %0d runs, %0d cycles, all as expected", runs, cycles);
    $finish;
  end

  always @(negedge clk) begin
    busy = busy + 1;
    if (busy == `LIMIT) begin
      $display("FAIL: still busy after %0d cycles", busy);
      fail;
    end
  end
endmodule
